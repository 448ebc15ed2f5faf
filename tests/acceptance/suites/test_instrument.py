"""suites/instrument: three suites over rule-based models, which need no data and no checkpoint."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.acceptance.suites.conftest import MakeProject
from tests.acceptance.suites.project import Cast, Project, Run, assert_held_unasked

pytestmark = pytest.mark.slow


PERFECT = Cast(model="shapes:", samples=2)

FORGETFUL = Cast(model="shapes:?miss=0.4", samples=2)


class Gated(NamedTuple):
    """The project, and the run that accepted the perfect describer."""

    project: Project
    run: Run


@pytest.fixture(scope="module")
def gated(make_project: MakeProject) -> Gated:
    """All three with the perfect describer accepted."""
    project = make_project("instrument")
    return Gated(project, project.accept(PERFECT))


def test_perfect_models_lose_nothing(gated: Gated) -> None:
    """Every similarity and share is 1, every distance and failure rate 0, in all three suites.

    KID alone is not: without bias it can fall below 0, and of so few images it does.
    """
    assert {case["suite"] for case in gated.run.cases.values()} == {
        "instrument", "instrument-drift", "instrument-tasks",
    }  # fmt: skip
    for case in gated.run.cases.values():
        if case["metric"] != "kid":
            assert case["value"] == pytest.approx(float(case["higher_is_better"]), abs=1e-5)


def test_the_same_describer_holds_without_a_model(gated: Gated) -> None:
    """All is in the store."""
    assert_held_unasked(gated.project.run(PERFECT), len(gated.run.cases))


def test_a_describer_that_forgets_objects_regresses_in_every_suite(gated: Gated) -> None:
    """GC, SIM, FID, MCD of every mapping, MGG: none of the means is the accepted one."""
    run = gated.project.run(FORGETFUL)
    assert run.code == pytest.ExitCode.TESTS_FAILED
    means = {name: case for name, case in run.cases.items() if "/overall/" in name}
    mappings = {name: case for name, case in run.cases.items() if "-to-" in name}
    assert len(mappings) == 4
    for name, case in {**means, **mappings}.items():
        # No chain stops; GenEval is of the first drawing, which the describer has no part in; KID
        # of so few images is within its tolerance.
        if not name.endswith(("failures", "geneval", "kid")):
            assert case["verdict"] == "regressed", name
            assert case["difference"] < -case["tolerance"]
    assert run.cases["instrument-tasks/overall/geneval"]["verdict"] == "held"
