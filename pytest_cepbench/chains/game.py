"""The chains of some samples: grown when they are first needed, made again where they were lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_cepbench.chains.chain import Chain, DamagedChainsError
from pytest_cepbench.chains.engine import Crew, advance, start_chains
from pytest_cepbench.chains.plan import ChainPlan
from pytest_cepbench.chains.replaying import replay_chains
from pytest_cepbench.datasets.replay import Replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import StoreError

_NOT_BEGUN = -1

_SPARE_REPAIRS = 4  # each repair makes a generation's images whole; more means a dying disk

T = TypeVar("T")


class Game:
    """The telephone game of one shard of samples.

    crew: who plays. replay: chains made elsewhere, which are read instead of grown.
    """

    def __init__(
        self, plan: ChainPlan, samples: Sequence[Sample], crew: Crew, replay: Replay | None = None
    ) -> None:
        self.plan = plan
        self.samples = tuple(samples)
        self._crew = crew
        self._replay = replay
        self._chains: list[Chain] = []
        self._reached = _NOT_BEGUN

    @property
    def chains(self) -> list[Chain]:
        """The chains, one per sample, grown now if they have not been."""
        return self.read(list)

    def read(self, use: Callable[[Sequence[Chain]], T]) -> T:
        """What `use` makes of the chains; where it meets damaged images they are made again.

        Raises DatasetError, ModelError, CheckpointError, and StoreError when images keep getting
        lost.
        """
        return self._read(self.plan.generations, use)

    def grow(self, generation: int) -> None:
        """Grow the chains to a generation, if they are not; raises as `read`."""
        self._read(generation, lambda _: None)

    def _read(self, generation: int, use: Callable[[Sequence[Chain]], T]) -> T:
        store = self._crew.store
        for _ in range(self.plan.generations + _SPARE_REPAIRS):
            try:
                self._reach(generation)
                return use(self._chains)
            except DamagedChainsError as damage:
                store.forget(damage.keys, why="the image it made is damaged or gone")
                self._reached = _NOT_BEGUN
        msg = f"images in the store {store.root} keep getting lost: is the disk failing?"
        raise StoreError(msg)

    def _reach(self, generation: int) -> None:
        if self._reached == _NOT_BEGUN:
            self._chains, self._reached = self._begin()
        while self._reached < generation:
            advance(self.plan, self._reached + 1, self._chains, self._crew)
            self._reached += 1

    def _begin(self) -> tuple[list[Chain], int]:
        store = self._crew.store
        if self._replay is not None:
            replayed = replay_chains(self.plan, self.samples, self._replay, store)
            return replayed, self.plan.generations
        return start_chains(self.plan, self.samples, store), 0


def grow_together(games: Sequence[Game]) -> None:
    """Grow the chains of games of one plan: a generation of all of them, then the next.

    So each role works once per generation, however many games there are. Raises as `Game.read`.
    """
    for generation in range(1, max((game.plan.generations for game in games), default=0) + 1):
        for game in games:
            game.grow(generation)
