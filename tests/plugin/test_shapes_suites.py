"""The three suites of the embedded world as they are shipped, run as a user runs them, on fewer samples."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugin.project import Project

ROOT = Path(__file__).parents[2]

FEW = ("--cep-samples=4",)


@pytest.fixture
def shipped(project: Project) -> Project:
    """A project with the shipped suites over the embedded world; a perfect generator is accepted."""
    shutil.copytree(ROOT / "suites" / "shapes", project.path / "suites" / "shapes")
    accepted = project.run(*FEW, "--model=shapes:", "--cep-role=generator", "--snapshot-update")
    assert accepted.ret == pytest.ExitCode.OK
    return project


def test_they_hold_and_two_workers_find_the_same(shipped: Project) -> None:
    """Every number on two workers with a store of their own; each suite has a verdict of its own."""
    same = (*FEW, "--model=shapes:", "--cep-role=generator")
    assert shipped.run("-n", "0", *same).ret == pytest.ExitCode.OK
    alone = shipped.numbers()
    assert {case["verdict"] for case in alone} == {"held"}
    pooled = [case["suite"] for case in alone if case["metric"] == "verdict"]
    assert sorted(pooled) == ["shapes", "shapes-drift", "shapes-tasks"]
    assert len(alone) == 42
    assert shipped.run("-n", "2", "--cep-store=another", *same).ret == pytest.ExitCode.OK
    assert shipped.numbers() == alone


def test_a_worse_generator_is_found_by_every_kind_of_metric(shipped: Project) -> None:
    """Similarities, distances, mappings and tasks all regress, with the same numbers on two workers."""
    # Another store has no chains of the baseline to follow a regression through.
    worse = (
        *FEW,
        "--model=shapes:?miss=0.5&recolor=0.5",
        "--cep-role=generator",
        "--cep-attribute=0",
    )
    result = shipped.run(*worse)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    alone = shipped.numbers()
    found = {f"{c['suite']} {c['part']}-{c['metric']}": c["verdict"] for c in alone}
    for case in (
        "shapes overall-gc", "shapes overall-sim", "shapes overall-fid",
        "shapes-drift overall-mcd", "shapes-drift image-to-text-mcd",
        "shapes-tasks overall-mgg", "shapes-tasks overall-geneval",
        "shapes suite-verdict", "shapes-drift suite-verdict", "shapes-tasks suite-verdict",
    ):  # fmt: skip
        assert found[case] == "regressed", case
    result.stdout.fnmatch_lines(["*in lower case: * informational, which cannot fail the run"])
    shipped.run("-n", "2", "--cep-store=another", *worse)
    assert shipped.numbers() == alone
