"""The cases of a suite: every number that is gated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.metrics import METRICS
from pytest_cepbench.suites.definition import OVERALL, Suite


@dataclass(frozen=True)
class Case:
    """One case.

    key: names it. label: its metric's name for people. categories: those whose unweighted mean is its value (a single one for a
    category's own case).
    """

    key: CaseKey
    label: str
    categories: tuple[str, ...]

    @property
    def id(self) -> str:
        """The parameter id of its pytest item, unique in its suite."""
        return f"{self.key.part}-{self.key.metric}"


def list_cases(suite: Suite, dataset: Dataset) -> list[Case]:
    """Every case of a suite, the same list in every process: categories, then groups, then all.

    A data set of a single category has only the overall case. Raises SuiteError when a group names
    a category that the data set does not have, or shares a category's name.
    """
    categories = dataset.categories
    _check_groups(suite, categories)
    parts: list[tuple[str, Sequence[str]]] = []
    if len(categories) > 1:
        parts += [(category, (category,)) for category in categories]
    parts += list(suite.table.groups.items())
    parts.append((OVERALL, categories))
    labels = {
        metric: METRICS[metric].label.format(T=suite.plan.iterations)
        for metric in suite.table.metrics
    }
    return [
        Case(CaseKey(suite.name, part, metric), label, tuple(members))
        for part, members in parts
        for metric, label in labels.items()
        if METRICS[metric].per_category or part == OVERALL
    ]


def _check_groups(suite: Suite, categories: Sequence[str]) -> None:
    for group, members in suite.table.groups.items():
        absent = [member for member in members if member not in categories]
        if absent or group in categories:
            problem = f"has no category {absent[0]!r}" if absent else f"has a category {group!r}"
            msg = (
                f"suite {suite.name!r}, group {group!r}: the data set {problem} "
                f"(categories: {', '.join(categories)})"
            )
            raise SuiteError(msg)
    if OVERALL in categories:
        msg = f"suite {suite.name!r}: a category cannot be named {OVERALL!r}"
        raise SuiteError(msg)
