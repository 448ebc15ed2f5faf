"""The cases of a suite: every number that is gated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SuiteError, did_you_mean
from pytest_cepbench.gate import CaseKey

OVERALL = "overall"
"""The part of a suite that is all of it; no category or group may have this name."""


@dataclass(frozen=True)
class Case:
    """One case.

    key: names it.
    label: its metric's name for people.
    categories: whose samples it is about.
    pool: its value is the unweighted mean of its categories' values, or one over all samples.
    """

    key: CaseKey
    label: str
    categories: tuple[str, ...]
    pool: Literal["categories", "samples"] = "categories"

    @property
    def id(self) -> str:
        """The parameter id of its pytest item, unique in its suite."""
        return f"{self.key.part}-{self.key.metric}"


@dataclass(frozen=True)
class PooledCase:
    """The verdict of a whole suite, over its primary cases.

    key, label: as of a case.
    members: the cases.
    """

    key: CaseKey
    label: str
    members: tuple[Case, ...]

    @property
    def id(self) -> str:
        """The parameter id of its pytest item, unique in its suite."""
        return f"{self.key.part}-{self.key.metric}"


POOLED = ("suite", "verdict")
"""Part and metric of a suite's own verdict; no metric may have the latter's name."""


def list_parts(
    suite: str, dataset: Dataset, groups: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Part -> its categories, the same in every process: categories, then groups, then all.

    A data set of a single category has only the overall part. Raises SuiteError when a group names
    a category that the data set does not have, or shares a category's name.
    """
    categories = dataset.categories
    parts: dict[str, tuple[str, ...]] = {}
    if len(categories) > 1:
        parts = {category: (category,) for category in categories}
    for group, members in groups.items():
        absent = [member for member in members if member not in categories]
        if absent or group in categories:
            problem = f"has no category {absent[0]!r}" if absent else f"has a category {group!r}"
            raise SuiteError(
                f"suite {suite!r}, group {group!r}: the data set {problem} "
                f"(categories: {', '.join(categories)})"
                f"{did_you_mean(absent[0], categories) if absent else ''}"
            )
        parts[group] = tuple(members)
    if OVERALL in categories:
        raise SuiteError(f"suite {suite!r}: a category cannot be named {OVERALL!r}")
    return parts | {OVERALL: categories}
