"""Groups of chains: grown when they are first needed, repaired where images were lost.

`look_ahead` says without a model which steps a group still needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from pytest_cepbench.chains.chain import Chain
from pytest_cepbench.chains.chain_plan import ChainPlan, derive_seed
from pytest_cepbench.chains.growth import (
    ChainModels,
    grow_generation,
    input_digest,
    read_stored,
    replay_chains,
    start_chains,
)
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.datasets.replay import Replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DamagedChainsError, StoreError

CHUNK = 32
"""Chains that are grown together, or as many as the largest batch of a model holds: while the
artifacts of one chunk are being stored, the model works on the next."""

_NOT_BEGUN = -1

_SPARE_REPAIRS = 4  # each repair restores a generation's images; more means a dying disk

T = TypeVar("T")


class ChainGroup:
    """The chains of one shard of samples.

    models: that grow them.
    replay: chains of another tool, which are read instead of grown.
    """

    def __init__(
        self,
        plan: ChainPlan,
        samples: Sequence[Sample],
        models: ChainModels,
        replay: Replay | None = None,
    ) -> None:
        self.plan = plan
        self.samples = tuple(samples)
        self._models = models
        self._replay = replay
        self._chains: list[Chain] = []
        self._chunks: list[_Chunk] = []
        self._reached = _NOT_BEGUN

    @property
    def begun(self) -> Sequence[Chain]:
        """The chains as far as they are, without growing them; none before they were begun."""
        return self._chains if self._reached != _NOT_BEGUN else ()

    @property
    def chains(self) -> list[Chain]:
        """The chains, one per sample, grown now if they have not been."""
        return self.read(list)

    def read(self, use: Callable[[Sequence[Chain]], T]) -> T:
        """Call `use` with the chains; where it meets damaged images they are made again.

        Raises DatasetError, ModelError, CheckpointError, and StoreError when images keep getting
        lost.
        """

        def use_settled(chains: Sequence[Chain]) -> T:
            for chunk in self._chunks:
                chunk.settle()
            return use(chains)

        return self._read(self.plan.generations, use_settled)

    def grow(self, generation: int) -> None:
        """Grow the chains to a generation, which may not be stored yet. Raises as `read`."""
        self._read(generation, lambda _: None)

    def _read(self, generation: int, use: Callable[[Sequence[Chain]], T]) -> T:
        store = self._models.store
        for _ in range(self.plan.generations + _SPARE_REPAIRS):
            try:
                self._reach(generation)
                return use(self._chains)
            except DamagedChainsError as damage:
                self._abandon()
                store.forget(damage.keys, why="the image it made is damaged or gone")
            except BaseException:
                self._abandon()
                raise
            finally:
                store.image_cache.clear()
        raise StoreError(
            f"images in the store {store.root} keep getting lost: is the disk failing?"
        )

    def _reach(self, generation: int) -> None:
        if self._reached == _NOT_BEGUN:
            self._begin()
        while self._reached < generation:
            for chunk in self._chunks:
                chunk.settle()
                chunk.unsettled = grow_generation(
                    self.plan, self._reached + 1, chunk.chains, self._models
                )
            self._reached += 1

    def _begin(self) -> None:
        store = self._models.store
        if self._replay is not None:
            self._chains = replay_chains(self.plan, self.samples, self._replay, store)
            self._reached = self.plan.generations
            return
        self._chains = start_chains(self.plan, self.samples, store)
        size = max(CHUNK, self._models.largest_batch)
        parts = (self._chains[low : low + size] for low in range(0, len(self._chains), size))
        self._chunks = [_Chunk(part) for part in parts]
        self._reached = 0

    def _abandon(self) -> None:
        """Begin anew next time, from what the store has; results on their way there arrive."""
        for chunk in self._chunks:
            with suppress(Exception):  # growing the chains again meets it again
                chunk.settle()
        self._chunks, self._reached = [], _NOT_BEGUN


@dataclass
class _Chunk:
    """Chains that are grown together. unsettled: adds the artifacts that are being stored."""

    chains: list[Chain]
    unsettled: Callable[[], None] | None = None

    def settle(self) -> None:
        """Wait for what is being stored."""
        unsettled, self.unsettled = self.unsettled, None
        if unsettled is not None:
            unsettled()


def grow_together(groups: Sequence[ChainGroup]) -> None:
    """Grow the chains of groups of one plan: a generation of all of them, then the next.

    So each model is loaded once per generation, however many groups there are. Raises as
    `ChainGroup.read`.
    """
    for generation in range(1, max((group.plan.generations for group in groups), default=0) + 1):
        for group in groups:
            group.grow(generation)


# -- steps that are pending ----------------------------------------------------------------------


@dataclass(frozen=True)
class PendingChain:
    """A chain as far as the store has it, and the steps that it needs where none fails.

    digests: of its artifacts, by generation; None for one that is not recorded. What is yet to be
        made has a name in place of a digest, the same for steps that are sure to make the same.
    stored: runner and key of the steps whose results are in the store.
    missing: runner and key of the others.
    """

    chain: Chain
    digests: tuple[str | None, ...]
    stored: tuple[tuple[RoleRunner, str], ...]
    missing: tuple[tuple[RoleRunner, str], ...]


def look_ahead(
    plan: ChainPlan, samples: Sequence[Sample], models: ChainModels, replay: Replay | None
) -> list[PendingChain]:
    """The pending chain of every sample. Raises as `read_stored` and `replay_chains`."""
    if replay is not None:
        chains = replay_chains(plan, samples, replay, models.store)
        return [PendingChain(chain, _digests(chain), (), ()) for chain in chains]
    return [_pending(plan, chain, models) for chain in read_stored(plan, samples, models)]


def _pending(plan: ChainPlan, chain: Chain, models: ChainModels) -> PendingChain:
    digests = list(_digests(chain))
    made = enumerate(chain.links[1:], start=1)
    stored = [
        (models.runner(plan, generation), link.key)
        for generation, link in made
        if link.key is not None
    ]
    missing = []
    last = 0 if chain.failure is not None else plan.generations
    for generation in range(len(chain.links), last + 1):
        runner = models.runner(plan, generation)
        key = _key(plan, chain, generation, runner, digests[-1] or "")
        missing.append((runner, key))
        digests.append(f"made by {key}")
    return PendingChain(chain, tuple(digests), tuple(stored), tuple(missing))


def _digests(chain: Chain) -> tuple[str | None, ...]:
    return tuple(link.digest if link.recorded else None for link in chain.links)


def _key(plan: ChainPlan, chain: Chain, generation: int, runner: RoleRunner, before: str) -> str:
    """Key of the step that makes a generation; a stand-in while its input is not made."""
    prompt = plan.describe if plan.describes(generation) else plan.generate
    seed = derive_seed(plan.seed, chain.sample.id, generation)
    if generation == len(chain.links):
        before = input_digest(plan, chain.links[-1])
    return runner.key(prompt, seed, plan.modality(generation - 1), before)
