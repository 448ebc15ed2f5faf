"""What the cases of a suite read of chains, as features that are made while the chains grow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import (
    Chain,
    ChainGroup,
    LaneGroup,
    Modality,
    Reading,
    RoleRunner,
    boxes,
    vectors,
    vqa_answers,
)
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.store import Store
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.base import RequiredFeatures

Requirement = tuple[RequiredFeatures, Sequence[Sample]]
"""Features that a case reads, and the samples of which it does."""


def lane_groups(chain_data: ChainData, required: Iterable[Requirement]) -> list[LaneGroup]:
    """The groups of chains that are required, and what is read of each.

    Features of cut-outs are left out: what is cut out is known when a detector has read the image.
    """
    by_start: dict[Modality, list[Requirement]] = {}
    for features, samples in required:
        by_start.setdefault(features.plan.start, []).append((features, samples))
    groups: list[LaneGroup] = []
    for start, own in by_start.items():
        wanted = {sample.id: sample for _, samples in own for sample in samples}
        groups += [
            LaneGroup(group, _readings(group, own, chain_data))
            for group in chain_data.groups(start, wanted.values())
        ]
    return groups


def _readings(
    group: ChainGroup, required: Sequence[Requirement], chain_data: ChainData
) -> list[Reading]:
    readers: dict[str, _Reader] = {}
    for features, samples in required:
        if features.reader is not None and not features.cutouts:
            runner = chain_data.runner(features.reader)
            reader = readers.setdefault(features.reader, _Reader(runner, chain_data.store))
            # The traces of a group are made for all of its chains.
            reader.add(features, group.samples if features.stops_chain else samples)
    return [reader.reading() for reader in readers.values()]


class _Reader:
    """One role that reads the chains of a group; what all cases want of it."""

    def __init__(self, runner: RoleRunner, store: Store) -> None:
        self._runner = runner
        self._store = store
        self._generations: set[int] = set()
        self._queries: dict[str, str] = {}  # by id of the samples that are read
        self._stops_chain = True
        self._failed: set[str] = set()

    def add(self, features: RequiredFeatures, samples: Iterable[Sample]) -> None:
        """Read these features of samples too."""
        self._generations.update(features.generations)
        self._stops_chain &= features.stops_chain
        for sample in samples:
            if sample.id not in self._queries:
                self._queries[sample.id] = features.query(sample, self._runner.bound)

    def reading(self) -> Reading:
        """All of it."""
        return Reading(self._runner, tuple(sorted(self._generations)), self._read)

    def _read(self, chains: Sequence[Chain], generation: int) -> None:
        wanted = self._queries.keys() - self._failed
        able = [chain for chain in chains if chain.sample.id in wanted and chain.has(generation)]
        results: Sequence[object]
        if self._runner.bound.role == "detector":
            queries: Mapping[str, Sequence[str]] = {
                chain.sample.id: json.loads(self._queries[chain.sample.id]) for chain in able
            }
            results = boxes(able, generation, queries, self._runner, self._store)
        elif self._runner.bound.role == "vqa":
            results = vqa_answers(able, generation, self._queries, self._runner, self._store)
        else:
            results = vectors(able, generation, self._runner, self._store)
        if self._stops_chain:
            failed = (
                chain.sample.id
                for chain, result in zip(able, results, strict=True)
                if isinstance(result, Failure)
            )
            self._failed.update(failed)
