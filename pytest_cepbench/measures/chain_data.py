"""The chains of a suite, with their traces and features: each is made once, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, ChainModels, ChainPlan, Modality, RoleRunner, Trace
from pytest_cepbench.chains.features import store_vectors, trace, vectors
from pytest_cepbench.chains.growth import (
    ChainGroup,
    PendingChain,
    grow_together,
    look_ahead,
    start_chains,
)
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.measures.cases import SHARD, SampleData
from pytest_cepbench.store import Vector

if TYPE_CHECKING:
    from pytest_cepbench.datasets.replay import Replay

V = TypeVar("V")


class ChainData(SampleData):
    """The chains of one suite, and what its encoders and detectors read of them, each made once.

    dataset, population: as of `SampleData`.
    plans: what is done to every sample, by the start of the chain.
    models: those that grow the chains.
    runner: gives the runner of a role by its name.
    replay: chains made elsewhere, read instead of grown.
    tested: the roles under test; what they fail at is their own failure.
    origin: the data of the whole population, also of a part of it that is grown once more with
    other models: among its starts artifacts are told apart.
    """

    def __init__(
        self,
        dataset: Dataset,
        plans: Mapping[Modality, ChainPlan],
        models: ChainModels,
        runner: Callable[[str], RoleRunner],
        replay: Replay | None = None,
        tested: tuple[str, ...] = (),
    ) -> None:
        super().__init__(dataset, models.store)
        self.tested = tested
        self.plans = plans
        self.runner = runner
        self.replay = replay
        self.origin = self
        self._models = models
        self._groups: dict[Modality, dict[str, ChainGroup]] = {}
        self._starts: dict[Modality, dict[str, str]] = {}

    def starts(self, start: Modality, samples: Sequence[Sample]) -> dict[str, str]:
        """Digest of each sample's seed, by id; no chain is grown for it.

        Raises DatasetError naming every sample whose seed cannot be used.
        """
        known = self._starts.setdefault(start, {})
        missing = [sample for sample in samples if sample.id not in known]
        groups = self._groups.get(start, {})
        # Begun chains know their seeds: looking again costs a file's status and a query each.
        for group in {id(group): group for s in missing if (group := groups.get(s.id))}.values():
            known.update((chain.sample.id, chain.links[0].digest) for chain in group.begun)
        missing = [sample for sample in missing if sample.id not in known]
        for chain in start_chains(self.plans[start], missing, self.store):
            known[chain.sample.id] = chain.links[0].digest
        return {sample.id: known[sample.id] for sample in samples}

    def look_ahead(self, start: Modality, samples: Sequence[Sample]) -> list[PendingChain]:
        """The chains of the samples as far as they are there, and what they still take."""
        starts = self.starts(start, samples)
        return look_ahead(self.plans[start], samples, self._models, self.replay, starts)

    def recast(
        self,
        samples: Sequence[Sample],
        plans: Mapping[Modality, ChainPlan],
        stand_ins: Mapping[tuple[Modality, int], RoleRunner],
    ) -> ChainData:
        """Data of its own on some of the samples, by their ids, with other models at some hops.

        plans: by start, as far as its chains are to go.
        stand_ins: see `ChainModels`.
        """
        models = replace(self._models, stand_ins=stand_ins)
        ordered = sorted({own.id: own for own in samples}.items())
        dataset = replace(self.dataset, samples=tuple(own for _, own in ordered))
        recast = ChainData(dataset, plans, models, self.runner, self.replay, self.tested)
        recast.origin = self.origin
        recast._starts = self._starts
        return recast

    def know_starts(self, other: ChainData) -> None:
        """Know what other data of the same samples know of their starts."""
        self._starts = other._starts

    def start_chains(self, start: Modality, samples: Sequence[Sample]) -> Iterator[list[Chain]]:
        """The starts of samples as chains of one link, so many at a time; none is grown.

        Raises as `starts`.
        """
        for low in range(0, len(samples), SHARD):
            yield start_chains(self.plans[start], samples[low : low + SHARD], self.store)
            self.store.artifact_cache.clear()

    def traces(
        self, start: Modality, role: str, generations: Sequence[int], samples: Sequence[Sample]
    ) -> dict[str, Trace]:
        """The trace of each sample by id, at these generations, by the encoder of a role."""
        self.require_recorded(start, generations)

        def read(chains: Sequence[Chain]) -> dict[str, Trace]:
            traces = trace(chains, generations, self.runner(role), self.store)
            return {read_trace.chain.sample.id: read_trace for read_trace in traces}

        return self.per_chain(("trace", role, *generations), start, samples, read)

    def readable(self, traces: Mapping[str, Trace], role: str) -> dict[str, Trace]:
        """Those that the encoder of a role did not fail at, unless it is under test.

        All of them where it failed at every one, which is no measurement.
        """
        if role in self.tested:
            return dict(traces)
        whole = {
            name: own
            for name, own in traces.items()
            if own.failure is None or own.failure is own.chain.failure
        }
        return whole or dict(traces)

    def features(
        self, start: Modality, role: str, generation: int, samples: Sequence[Sample]
    ) -> Iterator[list[tuple[Chain, Vector | Failure]]]:
        """Chain and features of each sample that has an artifact at the generation, shard by shard.

        In an order that depends on the samples alone, not on what was measured before: the last
        bits of a sum, and the blocks of a kernel distance, depend on it.
        """
        self.require_recorded(start, [generation])
        runner = self.runner(role)

        def read(chains: Sequence[Chain]) -> list[tuple[Chain, Vector | Failure]]:
            able = [c for c in chains if c.sample.id in names and c.has(generation)]
            return list(zip(able, vectors(able, generation, runner, self.store), strict=True))

        for shard in self.shards(samples).values():
            names = {sample.id for sample in shard}
            pairs = [pair for group in self._groups_of(start, shard) for pair in group.read(read)]
            by_sample = {chain.sample.id: (chain, vector) for chain, vector in pairs}
            yield [by_sample[sample.id] for sample in shard if sample.id in by_sample]

    def store_features(
        self, start: Modality, role: str, generations: Sequence[int], samples: Sequence[Sample]
    ) -> None:
        """Have features of the samples' artifacts at the generations in the store, reading none."""
        self.require_recorded(start, generations)
        runner = self.runner(role)
        names = {sample.id for sample in samples}

        def fill(chains: Sequence[Chain]) -> None:
            for generation in generations:
                able = [c for c in chains if c.sample.id in names and c.has(generation)]
                store_vectors(able, generation, runner, self.store)

        for group in self._groups_of(start, samples):
            group.read(fill)

    def grow(self, start: Modality, samples: Sequence[Sample]) -> None:
        """Grow the chains of the samples, all of them by a generation before the next."""
        grow_together(self._groups_of(start, samples))

    def chains(self, start: Modality, samples: Sequence[Sample]) -> dict[str, Chain]:
        """The chain of each sample by id."""
        groups = self._groups_of(start, samples)
        by_sample = {chain.sample.id: chain for group in groups for chain in group.chains}
        return {sample.id: by_sample[sample.id] for sample in samples}

    def cut_texts(
        self, plan: ChainPlan, role: str, generations: Sequence[int], samples: Sequence[Sample]
    ) -> str:
        """One sentence on the texts at these generations that were cut for a role's model.

        role: an encoder, which compares them, or the generator, which draws them. Empty where none
        was cut.
        """
        runner, draws = self.runner(role), role == "generator"

        def read(chains: Sequence[Chain]) -> dict[str, tuple[str | None, ...]]:
            texts = {
                chain.sample.id: [
                    plan.drawing_prompt(link.text) if draws else link.text
                    for at, link in enumerate(chain.links)
                    if at in generations and link.text is not None
                ]
                for chain in chains
            }
            cut = runner.cut_texts(text for own in texts.values() for text in own)
            # Of each text how long it was, None for one that was read whole.
            return {name: tuple(map(cut.get, own)) for name, own in texts.items()}

        by_sample = self.per_chain(("cut", role, *generations), plan.start, samples, read).values()
        every = [length for own in by_sample for length in own]
        cut = [length for length in every if length is not None]
        if not cut:
            return ""
        most = cut[0].rpartition(" ")[2]
        what, used = ("prompts", "drawn") if draws else ("texts", "compared")
        return (
            f"{len(cut)} of {len(every)} {what} were longer than the {most} tokens that "
            f"{runner.bound.spec} reads, and were {used} by their beginning"
        )

    def per_chain(
        self,
        key: Hashable,
        start: Modality,
        samples: Sequence[Sample],
        read: Callable[[Sequence[Chain]], Mapping[str, V]],
    ) -> dict[str, V]:
        """The results of `read` on each sample's chain, by sample id; kept under the key.

        It is given the chains of a shard at once, also those that other samples have. Where it
        meets damaged artifacts they are made anew.
        """
        known = self._known.setdefault((start, key), {})
        missing = [sample for sample in samples if sample.id not in known]
        for group in self._groups_of(start, missing):
            known.update(group.read(read))
        return {sample.id: known[sample.id] for sample in samples}

    def require_recorded(self, start: Modality, generations: Sequence[int]) -> None:
        """Raise MeasurementError where chains made elsewhere never hold one of the generations."""
        if self.replay is None:
            return
        for generation in generations:
            # The start is the data set's own.
            if generation > 0 and not self.replay.records(start, generation):
                modality = self.plans[start].modality(generation)
                raise MeasurementError(
                    f"the chains of {self.replay.path} ({self.replay.name}) are {start}-first "
                    f"without the {modality} of generation {generation}, which this metric needs"
                )

    def _groups_of(self, start: Modality, samples: Iterable[Sample]) -> list[ChainGroup]:
        """The groups that the samples' chains grow in, made when they are first needed."""
        groups = self._groups.setdefault(start, {})
        wanted = list(samples)
        missing = {s.id: s for s in wanted if s.id not in groups}
        for shard in self.shards(missing.values()).values():
            group = ChainGroup(self.plans[start], shard, self._models, self.replay)
            groups.update(dict.fromkeys((sample.id for sample in shard), group))
        return list({id(group): group for group in (groups[s.id] for s in wanted)}.values())


def first_difference(chain: Chain, other: Chain) -> int | None:
    """The first generation whose artifacts differ, or that one of two chains of a sample lacks."""
    for generation, (mine, theirs) in enumerate(zip_longest(chain.links, other.links)):
        if mine is None or theirs is None or mine.digest != theirs.digest:
            return generation
    return None
