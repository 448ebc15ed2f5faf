"""Pairs of answers compared by the facts of the scenes that they tell of or show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains import Chain, ChainGroup, ChainPlan
from pytest_cepbench.datasets.edits import SCENE_EDITS, UNSEEN_EDITS, SceneEdit, scene_facts
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption, parse_image
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.metrics.equivariance import (
    FAILED,
    EditedFacts,
    EditScore,
    chance_level,
    edit_score,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.edited_pairs import EditedPair, PairScores, load_answer

ScoreName = Literal["both", "followed", "kept"]

SCORES: Mapping[ScoreName, Callable[[EditScore], float]] = {
    "both": lambda score: score.both,
    "followed": lambda score: score.followed,
    "kept": lambda score: score.kept,
}


@dataclass(frozen=True)
class FactComparison:
    """Compares what answers say of a generated scene, fact by fact; see `Comparison`.

    at: the generation of the answers.
    score_name: which of the two shares is the score of a pair, or their product.
    """

    at: int
    score_name: ScoreName
    reader: str | None = None
    span: float = 1.0

    @property
    def identity(self) -> str:
        """The formula."""
        return f"facts/1 {self.score_name}"

    def read(self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The chains: scenes are read when they are scored, which takes no model."""
        chain_data.chains(plan.start, samples)

    def score(
        self, plan: ChainPlan, edit: str, pairs: Sequence[EditedPair], chain_data: ChainData
    ) -> PairScores:
        """Followed, kept, or their product, of each pair. Raises MeasurementError for no scenes."""
        samples = {chain.sample.id: chain.sample for p in pairs for chain in (p.before, p.after)}
        scenes = self._scenes(plan, list(samples.values()), chain_data)
        scores: dict[str, EditScore] = {}
        remarks: dict[str, str] = {}
        read: list[EditedFacts] = []
        changes = edit not in UNSEEN_EDITS
        for pair in pairs:
            before, after = scenes[pair.before.sample.id], scenes[pair.name]
            if before is None or after is None:
                scores[pair.name], remarks[pair.name] = FAILED, "an answer is missing"
                continue
            expected = _edit_of(pair.after.sample).apply(before) if changes else before
            facts = EditedFacts(
                pair.after.sample.unit,
                scene_facts(before),
                None if expected is None else scene_facts(expected),
                scene_facts(after),
            )
            read.append(facts)
            score = edit_score(facts.before, facts.expected, facts.after, changes=changes)
            scores[pair.name], remarks[pair.name] = score, _remark(pair, before, expected, score)
        of_pair = SCORES[self.score_name]
        return PairScores(
            values={name: of_pair(score) for name, score in scores.items()},
            floor=chance_level(read, of_pair, changes=changes),
            remarks=remarks,
            note=_note(edit, list(scores.values())),
        )

    def _scenes(
        self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, Scene | None]:
        """The scene of each sample's answer; None where there is no answer."""

        def read(group: ChainGroup) -> dict[str, Scene | None]:
            return group.read(
                lambda chains: {
                    chain.sample.id: _scene(chain, self.at, chain_data.store) for chain in chains
                }
            )

        key = ("scenes of answers", self.at)
        return chain_data.per_sample(key, plan.start, samples, read)


def _scene(chain: Chain, generation: int, store: Store) -> Scene | None:
    if not chain.has(generation):
        return None
    answer = load_answer(chain, generation, store)
    if isinstance(answer, str):
        return parse_caption(answer)
    return parse_image(ImageArtifact.from_pil(answer))


def _edit_of(sample: Sample) -> SceneEdit:
    """The edit of an edited sample. Raises MeasurementError where it is none of a scene."""
    assert sample.edit is not None
    if sample.edit.name not in SCENE_EDITS or "scene" not in sample.metadata:
        raise MeasurementError(
            f"sample {sample.id!r} is no generated scene, and compare = 'facts' reads scenes: set "
            "compare = 'vectors'"
        )
    return SceneEdit.read(sample.edit.name, sample.edit.target)


def _remark(pair: EditedPair, before: Scene, expected: Scene | None, score: EditScore) -> str:
    """Only words of the world are quoted: an answer may hold anything."""
    shares = f"followed {score.followed:.2f}, kept {score.kept:.2f}"
    of = f"compared with {pair.before.sample.id!r}, read there as {caption(before)!r}"
    if expected is None:
        return f"{shares}; {of}, which has not the object that is edited"
    return f"{shares}; {of}; expected here: {caption(expected)!r}"


def _note(edit: str, scores: Sequence[EditScore]) -> str:
    if not scores:
        return ""
    followed = fsum(score.followed for score in scores) / len(scores)
    kept = fsum(score.kept for score in scores) / len(scores)
    return f"{edit}: edit followed {followed:.3f}, rest kept {kept:.3f}, {len(scores)} pairs"
