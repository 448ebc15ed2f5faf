"""The cases of a suite, every number that is gated, and its samples as they are measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import SuiteError, did_you_mean
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.store import Store

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

    A data set of a single category has only the overall part; a category that a group names twice
    counts once. Raises SuiteError when a group names
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
        parts[group] = tuple(dict.fromkeys(members))
    if OVERALL in categories:
        raise SuiteError(f"suite {suite!r}: a category cannot be named {OVERALL!r}")
    return parts | {OVERALL: categories}


V = TypeVar("V")

SHARD = 64
"""Most samples that are grown together, and that one process takes at a time. Shards lie within a
category and at fixed places in it, so batches, and with them the last bits of results, do not
depend on how many processes there are."""

Cell = tuple[int, int]
"""Where a shard lies: the number of its category, and its own therein."""


class SampleData:
    """The samples of one suite, and what is known of each.

    dataset: the samples that are looked at.
    population: all samples; the same but for a look at a part of them.
    store: of every result.
    """

    def __init__(self, dataset: Dataset, store: Store) -> None:
        self.store = store
        self.dataset = dataset
        self.population = dataset
        self._known: dict[Hashable, dict[str, Any]] = {}
        # The number of each sample's category, and its own number therein.
        self._places: dict[str, tuple[int, int]] = {}
        homes: dict[str, int] = {}
        counts: dict[str, int] = {}
        for sample in dataset.samples:
            name = sample.categories[0]
            number = counts[name] = counts.get(name, -1) + 1
            self._places[sample.id] = (homes.setdefault(name, len(homes)), number)

    def narrowed(self, most: int | None) -> Self:
        """A look at no more than so many samples of each category, at all where None.

        What is known is shared.
        """
        if most is None:
            return self
        look = copy(self)
        look.dataset = self.cached("narrowed", str(most), lambda: self.population.limited(most))
        return look

    def shards(self, samples: Iterable[Sample]) -> dict[Cell, list[Sample]]:
        """The samples by their shard, in an order that depends on the samples alone."""
        shards: dict[Cell, list[Sample]] = {}
        for sample in sorted(samples, key=lambda sample: self._places[sample.id]):
            home, number = self._places[sample.id]
            shards.setdefault((home, number // SHARD), []).append(sample)
        return shards

    def named(self, sample_id: str) -> list[Sample]:
        """The sample of this id, in a list."""
        sample = self.dataset.with_id(sample_id)
        return [] if sample is None else [sample]

    def cached(self, key: Hashable, name: str, make: Callable[[], V]) -> V:
        """The result of `make`, kept under the key and a name."""
        known = self._known.setdefault(key, {})
        if name not in known:
            known[name] = make()
        result: V = known[name]
        return result
