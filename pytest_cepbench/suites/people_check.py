"""Ratings of people belong to the suite whose samples they were given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.errors import DatasetError, SpecError
from pytest_cepbench.models.registry import HUMAN
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.model_options import RoleAssignment


def refuse_foreign_ratings(suite: Suite, roles: Mapping[str, RoleAssignment]) -> None:
    """Raise SpecError where people play a role by ratings of another suite.

    Ratings without a suite, of items of one's own, are of any; so is a folder that cannot be read,
    which binding explains.
    """
    for assignment in roles.values():
        if assignment.spec.scheme != HUMAN:
            continue
        try:
            study = read_ratings(Path(assignment.spec.target)).study
        except DatasetError:
            continue
        if study.suite not in ("", suite.name):
            msg = (
                f"suite {suite.name!r}: {assignment.spec} holds ratings of the suite "
                f"{study.suite!r}: people have to see the answers of this one"
            )
            raise SpecError(msg)
