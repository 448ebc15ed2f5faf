"""What people can play in a suite: ratings of its own samples, descriptions of its starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.errors import DatasetError, SpecError
from pytest_cepbench.models.spec import HUMAN
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.model_options import RoleAssignment

ONE_ITERATION = "suites/folder-described"
"""A suite in which people can describe."""


def check_people(suite: Suite, assignment: RoleAssignment) -> None:
    """Raise SpecError where people play a role by ratings of another suite, or cannot play it.

    Ratings without a suite, of items of one's own, are of any; so is a folder that cannot be read,
    which binding explains.
    """
    if assignment.spec.scheme == HUMAN:
        for problem in _problems(suite, assignment):
            raise SpecError(f"suite {suite.name!r}: {assignment.spec} {problem}")


def _problems(suite: Suite, assignment: RoleAssignment) -> Iterator[str]:
    try:
        study = read_ratings(Path(assignment.spec.target)).study
    except DatasetError:
        return
    if study.kind == "describe" and describes_drawings(suite):
        yield (
            "needs a suite whose chains start with an image and have one iteration, such as "
            f"{ONE_ITERATION}: people described images of the study, and not what models "
            "drew of them"
        )
    seen = "images" if study.kind == "describe" else "answers"
    if study.suite not in ("", suite.name):
        yield (
            f"holds ratings of the suite {study.suite!r}: people have to see the {seen} of this one"
        )


def describes_drawings(suite: Suite) -> bool:
    """Whether a describer is asked about an image that a model drew, which people never saw."""
    longest = {"image": 2, "text": 1}
    return any(plan.generations > longest[start] for start, plan in suite.plans.items())
