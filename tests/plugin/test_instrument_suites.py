"""The instrument's three suites as shipped, run as a user runs them, on fewer samples."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugin.project import Project

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]

FEW = ("--cep-samples=4",)


@pytest.fixture
def shipped(project: Project) -> Project:
    """A project with the instrument's suites; a perfect generator is accepted."""
    shutil.copytree(ROOT / "suites" / "instrument", project.path / "suites" / "instrument")
    accepted = project.run(*FEW, "--model=shapes:", "--cep-role=generator", "--snapshot-update")
    assert accepted.ret == pytest.ExitCode.OK
    return project


def test_they_hold_and_two_workers_find_the_same(shipped: Project) -> None:
    """Every number on two workers with their own store; each suite has a verdict of its own."""
    same = (*FEW, "--model=shapes:", "--cep-role=generator")
    assert shipped.run("-n", "0", *same).ret == pytest.ExitCode.OK
    alone = shipped.numbers()
    assert {case["verdict"] for case in alone} == {"held"}
    pooled = [case["suite"] for case in alone if case["metric"] == "verdict"]
    assert sorted(pooled) == ["instrument", "instrument-drift", "instrument-tasks"]
    assert len(alone) == 46
    assert shipped.run("-n", "2", "--cep-store=another", *same).ret == pytest.ExitCode.OK
    assert shipped.numbers() == alone


def test_a_worse_generator_is_found_by_every_kind_of_metric(shipped: Project) -> None:
    """Similarities, distances, mappings and tasks all regress; the same numbers on two workers."""
    # Another store has no chains of the baseline to follow a regression through.
    worse = (
        *FEW,
        "--model=shapes:?miss=0.5&recolor=0.5",
        "--cep-role=generator",
        "--cep-attribute=0",
    )
    result = shipped.run("-vv", *worse)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    alone = shipped.numbers()
    verdicts = {f"{c['suite']} {c['part']}-{c['metric']}": c["verdict"] for c in alone}
    for case in (
        "instrument overall-gc", "instrument overall-sim", "instrument overall-fid",
        "instrument-drift overall-mcd", "instrument-drift image-to-text-mcd",
        "instrument-tasks overall-mgg", "instrument-tasks overall-geneval",
        "instrument suite-verdict", "instrument-drift suite-verdict",
        "instrument-tasks suite-verdict",
    ):  # fmt: skip
        assert verdicts[case] == "regressed", case
    result.stdout.fnmatch_lines(["* informational, which cannot fail the run: *"])
    shipped.run("-n", "2", "--cep-store=another", *worse)
    assert shipped.numbers() == alone
