"""The chains of some samples: grown when they are first needed, made again where they were lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_cepbench.chains.chain import Chain, DamagedChainsError
from pytest_cepbench.chains.engine import Crew, grow
from pytest_cepbench.chains.plan import ChainPlan
from pytest_cepbench.chains.replaying import replay_chains
from pytest_cepbench.datasets.replay import Replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import StoreError

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
        self._chains: list[Chain] | None = None

    @property
    def chains(self) -> list[Chain]:
        """The chains, one per sample, grown now if they have not been."""
        return self.read(list)

    def read(self, use: Callable[[Sequence[Chain]], T]) -> T:
        """What `use` makes of the chains; where it meets damaged images they are made again.

        Raises DatasetError, ModelError, CheckpointError, and StoreError when images keep getting
        lost.
        """
        store = self._crew.store
        for _ in range(self.plan.generations + _SPARE_REPAIRS):
            try:
                if self._chains is None:
                    self._chains = self._make()
                return use(self._chains)
            except DamagedChainsError as damage:
                store.forget(damage.keys, why="the image it made is damaged or gone")
                self._chains = None
        msg = f"images in the store {store.root} keep getting lost: is the disk failing?"
        raise StoreError(msg)

    def _make(self) -> list[Chain]:
        if self._replay is not None:
            return replay_chains(self.plan, self.samples, self._replay, self._crew.store)
        return grow(self.plan, self.samples, self._crew)
