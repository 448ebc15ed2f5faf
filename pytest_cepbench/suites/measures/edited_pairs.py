"""Pairs of chains, from a start and from the same start edited, and the scores of such pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, ChainPlan, load_link
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DamagedChainsError
from pytest_cepbench.store import Store
from pytest_cepbench.suites.chain_data import ChainData


@dataclass(frozen=True)
class EditedPair:
    """Two chains of one plan: before, from a start; after, from that start edited."""

    before: Chain
    after: Chain

    @property
    def name(self) -> str:
        """The id of the edited sample, which has the pair's score."""
        return self.after.sample.id


@dataclass(frozen=True)
class EditPairs:
    """The pairs of one edit. unchanged: how many were left out, whose starts are equal."""

    pairs: tuple[EditedPair, ...]
    unchanged: int


@dataclass(frozen=True)
class PairScores:
    """The scores of the pairs of one edit.

    values: of each pair, by the id of its edited sample.
    floor: what chance gives; None where it is not known.
    failures: what could not be read, by sample id.
    remarks: what a reader should know of a pair, by the id of its edited sample.
    note: a sentence on all of them; empty where there is nothing to say.
    """

    values: Mapping[str, float]
    floor: float | None
    failures: Mapping[str, Failure] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


class Comparison(Protocol):
    """A way to compare the answers of a pair."""

    @property
    def reader(self) -> str | None:
        """The role that reads the answers; None where none does."""

    @property
    def identity(self) -> str:
        """Version and settings that decide the scores."""

    @property
    def span(self) -> float:
        """The distance of the best from the worst score."""

    def read(self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """Have everything made that the scores of these samples need. Raises as reading chains."""

    def score(
        self, plan: ChainPlan, edit: str, pairs: Sequence[EditedPair], chain_data: ChainData
    ) -> PairScores:
        """The scores of the pairs of an edit. Raises MeasurementError where there can be none."""


def pair_up(
    edits: Sequence[str], samples: Sequence[Sample], chains: Mapping[str, Chain]
) -> dict[str, EditPairs]:
    """The pairs of each edit, in the order of the samples.

    A pair whose starts are equal, since the edit changes nothing in them, is left out: an answer
    that does not change is no success there. So is an edited sample whose other one is not among
    the samples.
    """
    paired: dict[str, list[EditedPair]] = {edit: [] for edit in edits}
    unchanged = dict.fromkeys(edits, 0)
    for sample in samples:
        if sample.edit is None or sample.edit.name not in paired or sample.edit.of not in chains:
            continue
        pair = EditedPair(chains[sample.edit.of], chains[sample.id])
        if pair.before.links[0].digest == pair.after.links[0].digest:
            unchanged[sample.edit.name] += 1
        else:
            paired[sample.edit.name].append(pair)
    return {edit: EditPairs(tuple(pairs), unchanged[edit]) for edit, pairs in paired.items()}


def load_answer(chain: Chain, generation: int, store: Store) -> str | Image.Image:
    """A chain's artifact. Raises DamagedChainsError where a stored image is damaged."""
    answer: Any = load_link(chain, generation, store)
    if answer is None:
        key = chain.links[generation].key
        raise DamagedChainsError([] if key is None else [key])
    assert isinstance(answer, str | Image.Image)
    return answer
