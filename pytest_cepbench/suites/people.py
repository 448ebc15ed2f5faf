"""Suites in which people play a role."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.errors import DatasetError, SpecError
from pytest_cepbench.models.spec import HUMAN
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.model_options import RoleAssignment

ONE_ITERATION = "suites/folder-described"
"""A suite in which people can describe."""


def check_people(suite: Suite, assignment: RoleAssignment) -> None:
    """Raise SpecError where people play a role by ratings of another suite, or cannot play it.

    Ratings without a suite, of items of one's own, are of any; so is a folder that cannot be read,
    which binding explains.
    """
    if assignment.spec.scheme != HUMAN:
        return
    from pytest_cepbench.ratings.folder import read_ratings

    try:
        study = read_ratings(Path(assignment.spec.target)).study
    except DatasetError:
        return
    problem = ""
    if study.kind == "describe" and describes_drawings(suite):
        problem = (
            "needs a suite whose chains start with an image and have one iteration, such as "
            f"{ONE_ITERATION}: people described images of the study, and not what models "
            "drew of them"
        )
    elif study.suite not in ("", suite.name):
        seen = "images" if study.kind == "describe" else "answers"
        problem = (
            f"holds ratings of the suite {study.suite!r}: people have to see the {seen} of this one"
        )
    if problem:
        raise SpecError(f"suite {suite.name!r}: {assignment.spec} {problem}")


def describes_drawings(suite: Suite) -> bool:
    """Whether a describer is asked about an image that a model drew, which people never saw."""
    return any(plan.generations > 1 + (start != "text") for start, plan in suite.plans.items())
