"""The three suites of the embedded world as they are shipped, run as a user runs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugin.project import Project

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shipped(project: Project) -> Project:
    """A project with the shipped suites over the embedded world, and their baselines."""
    shutil.copytree(ROOT / "suites" / "shapes", project.path / "suites" / "shapes")
    for name in ("shapes", "shapes-drift", "shapes-tasks"):
        shutil.copytree(ROOT / "baselines" / name, project.path / "baselines" / name)
    return project


def test_they_hold_and_two_workers_find_the_same(shipped: Project) -> None:
    """Against their shipped baselines; every number on two workers with a store of their own, too."""
    assert shipped.run("-n", "0").ret == pytest.ExitCode.OK
    alone = shipped.numbers()
    assert {case["verdict"] for case in alone} == {"held"}
    assert {case["suite"] for case in alone} == {"shapes", "shapes-drift", "shapes-tasks"}
    assert shipped.run("-n", "2", "--cep-store=another").ret == pytest.ExitCode.OK
    assert shipped.numbers() == alone


def test_a_worse_generator_is_found_by_every_kind_of_metric(shipped: Project) -> None:
    """Similarities, distances, mappings and tasks all regress, with the same numbers on two workers."""
    few = ("--cep-samples=4", "--model=shapes:", "--cep-role=generator")
    assert shipped.run(*few, "--snapshot-update").ret == pytest.ExitCode.OK
    worse = ("--cep-samples=4", "--model=shapes:?miss=0.3&recolor=0.3", "--cep-role=generator")
    assert shipped.run(*worse).ret == pytest.ExitCode.TESTS_FAILED
    alone = shipped.numbers()
    found = {f"{c['suite']} {c['part']}-{c['metric']}": c["verdict"] for c in alone}
    for case in (
        "shapes overall-gc", "shapes overall-sim", "shapes overall-gc_fid", "shapes overall-fid",
        "shapes-drift overall-mcd", "shapes-drift image-to-text-mcd",
        "shapes-tasks overall-mgg", "shapes-tasks overall-geneval",
    ):  # fmt: skip
        assert found[case] == "regressed", case
    shipped.run("-n", "2", "--cep-store=another", *worse)
    assert shipped.numbers() == alone
