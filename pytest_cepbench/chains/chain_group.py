"""The chains of some samples: grown when they are first needed, made again where they were lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from pytest_cepbench.chains.chain import Chain
from pytest_cepbench.chains.chain_plan import ChainPlan
from pytest_cepbench.chains.growth import ChainModels, ask, start_chains
from pytest_cepbench.chains.replay import replay_chains
from pytest_cepbench.datasets.replay import Replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DamagedChainsError, StoreError

LANE = 32
"""Chains that are asked for together, or as many as a batch of who plays holds: while the artifacts of
one lane are being stored, the model works on the next."""

_NOT_BEGUN = -1

_SPARE_REPAIRS = 4  # each repair makes a generation's images whole; more means a dying disk

T = TypeVar("T")


class ChainGroup:
    """The telephone game of one shard of samples.

    crew: who plays. replay: chains made elsewhere, which are read instead of grown.
    """

    def __init__(
        self,
        plan: ChainPlan,
        samples: Sequence[Sample],
        crew: ChainModels,
        replay: Replay | None = None,
    ) -> None:
        self.plan = plan
        self.samples = tuple(samples)
        self._crew = crew
        self._replay = replay
        self._chains: list[Chain] = []
        self._lanes: list[_Lane] = []
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
        """What `use` makes of the chains; where it meets damaged images they are made again.

        Raises DatasetError, ModelError, CheckpointError, and StoreError when images keep getting
        lost.
        """

        def whole(chains: Sequence[Chain]) -> T:
            for lane in self._lanes:
                lane.settle()
            return use(chains)

        return self._read(self.plan.generations, whole)

    def grow(self, generation: int) -> None:
        """Have the chains grown to a generation, which may still be being stored; raises as `read`."""
        self._read(generation, lambda _: None)

    def _read(self, generation: int, use: Callable[[Sequence[Chain]], T]) -> T:
        store = self._crew.store
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
        msg = f"images in the store {store.root} keep getting lost: is the disk failing?"
        raise StoreError(msg)

    def _reach(self, generation: int) -> None:
        if self._reached == _NOT_BEGUN:
            self._begin()
        while self._reached < generation:
            for lane in self._lanes:
                lane.settle()
                lane.left = ask(self.plan, self._reached + 1, lane.chains, self._crew)
            self._reached += 1

    def _begin(self) -> None:
        store = self._crew.store
        if self._replay is not None:
            self._chains = replay_chains(self.plan, self.samples, self._replay, store)
            self._reached = self.plan.generations
            return
        self._chains = start_chains(self.plan, self.samples, store)
        size = max(LANE, self._crew.largest_batch)
        parts = (self._chains[low : low + size] for low in range(0, len(self._chains), size))
        self._lanes = [_Lane(part) for part in parts]
        self._reached = 0

    def _abandon(self) -> None:
        """Begin anew next time, from what the store has; what is on its way there arrives."""
        for lane in self._lanes:
            with suppress(Exception):  # whatever it is, the chains will meet it again
                lane.settle()
        self._lanes, self._reached = [], _NOT_BEGUN


@dataclass
class _Lane:
    """Chains that are asked for together. left: gives them the artifacts that are being stored."""

    chains: list[Chain]
    left: Callable[[], None] | None = None

    def settle(self) -> None:
        """Wait for what is being stored."""
        left, self.left = self.left, None
        if left is not None:
            left()


def grow_together(games: Sequence[ChainGroup]) -> None:
    """Grow the chains of games of one plan: a generation of all of them, then the next.

    So each role works once per generation, however many games there are. Raises as `Game.read`.
    """
    for generation in range(1, max((game.plan.generations for game in games), default=0) + 1):
        for game in games:
            game.grow(generation)
