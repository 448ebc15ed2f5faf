"""Metrics of edited scenes: facts, pairs of edits, and vectors before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, Literal, Protocol

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_text
from pytest_cepbench.chains import Chain, ChainPlan, RoleRunner, Step, load_link
from pytest_cepbench.datasets.edits import (
    PIXEL_EDITS,
    SCENE_EDITS,
    UNSEEN_EDITS,
    SceneEdit,
    scene_facts,
    swap_sides,
)
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption, parse_image
from pytest_cepbench.errors import DamagedChainsError, MeasurementError
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.sanity_checks import refuse_same
from pytest_cepbench.metrics.constancy import (
    FAILED,
    EditedFacts,
    EditScore,
    chance_level,
    edit_score,
)
from pytest_cepbench.metrics.gc import chance_similarities, cosine_to_start
from pytest_cepbench.store import Store, Vector


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

        def read(chains: Sequence[Chain]) -> dict[str, Scene | None]:
            return {c.sample.id: _scene(c, self.at, chain_data.store) for c in chains}

        return chain_data.per_chain(("scenes of answers", self.at), plan.start, samples, read)


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


VECTOR_EDITS = tuple(PIXEL_EDITS)
"""Edits that can be made in any answer: in a text by rule, in an image by its pixels."""

Encoded = Vector | Failure | None
"""What an encoder made of an answer; None where there is no answer."""


@dataclass(frozen=True)
class VectorComparison:
    """Compares answers by the cosine of an encoder's vectors; see `Comparison`.

    at: the generation of the answers.
    encoder: the role that encodes them.
    """

    at: int
    encoder: str
    span: float = 2.0

    @property
    def reader(self) -> str | None:
        """The encoder."""
        return self.encoder

    @property
    def identity(self) -> str:
        """The formula, and the role that compares."""
        return f"cosine/1 by {self.encoder}"

    def read(self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The vectors of the answers, mirrored where they are of a start that was not edited."""
        for mirrored in (False, True):
            self._vectors(plan, samples, chain_data, mirrored=mirrored)

    def score(
        self, plan: ChainPlan, edit: str, pairs: Sequence[EditedPair], chain_data: ChainData
    ) -> PairScores:
        """The cosine of each pair; 0 where a vector is missing.

        Raises MeasurementError where the encoder gives one vector for answers that differ.
        """
        mirrored = edit not in UNSEEN_EDITS
        starts = [pair.before.sample for pair in pairs]
        expected = self._vectors(plan, starts, chain_data, mirrored=mirrored)
        edited = [pair.after.sample for pair in pairs]
        given = self._vectors(plan, edited, chain_data, mirrored=False)
        failures = {
            name: vector
            for vectors in (expected, given)
            for name, vector in vectors.items()
            if isinstance(vector, Failure)
        }
        width = next((len(v) for v in given.values() if isinstance(v, np.ndarray)), 1)
        first = np.zeros((len(pairs), width), dtype=np.float32)
        second = np.zeros((len(pairs), 1, width), dtype=np.float32)
        whole = []
        for row, pair in enumerate(pairs):
            before, after = expected[pair.before.sample.id], given[pair.name]
            if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
                first[row], second[row, 0] = before, after
                whole.append(row)
        answers = {pairs[row].after.links[self.at].digest: second[row, 0] for row in whole}
        spec = chain_data.runner(self.encoder).bound.spec
        refuse_same(spec, plan.modality(self.at), answers)
        cosines = np.zeros(len(pairs))
        if whole:
            cosines[whole] = cosine_to_start(first[whole], second[whole])[:, 0]
        units = [pair.after.sample.unit for pair in pairs]
        homes = [pair.after.sample.categories[0] for pair in pairs]
        chance = chance_similarities(first, second, units, homes)
        names = [pair.name for pair in pairs]
        return PairScores(
            values=dict(zip(names, cosines.tolist(), strict=True)),
            floor=None if chance is None else float(chance.mean()),
            failures=failures,
            note=_vectors_note(edit, self._unnamed(pairs) if mirrored else 0, len(pairs)),
        )

    def _unnamed(self, pairs: Sequence[EditedPair]) -> int:
        """How many texts stay as they are when their sides are exchanged."""
        texts = [p.before.links[self.at].text for p in pairs if p.before.has(self.at)]
        return sum(text is not None and swap_sides(text) == text for text in texts)

    def _vectors(
        self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData, *, mirrored: bool
    ) -> dict[str, Encoded]:
        """The vector of each sample's answer, by sample id, or of the mirrored answer."""

        def read(chains: Sequence[Chain]) -> dict[str, Encoded]:
            runner = chain_data.runner(self.encoder)
            return self._encode(chains, runner, chain_data.store, mirrored=mirrored)

        key = ("vectors of edited answers", self.at, self.encoder, mirrored)
        return chain_data.per_chain(key, plan.start, samples, read)

    def _encode(
        self, chains: Sequence[Chain], runner: RoleRunner, store: Store, *, mirrored: bool
    ) -> dict[str, Encoded]:
        # The mirrored answer to an edited start is compared with nothing.
        able = [c for c in chains if c.has(self.at) and not (mirrored and c.sample.edit)]
        encoded: dict[str, Encoded] = {chain.sample.id: None for chain in chains}
        if not able:
            return encoded
        kind = able[0].links[self.at].kind
        steps = [_step(load_answer(c, self.at, store), runner, mirrored=mirrored) for c in able]
        for chain, result in zip(able, runner.ask(f"encode_{kind}s", steps), strict=True):
            assert isinstance(result, np.ndarray | Failure)
            encoded[chain.sample.id] = result
        return encoded


def _step(answer: str | Image.Image, runner: RoleRunner, *, mirrored: bool) -> Step:
    """The step that encodes an answer, or the mirrored answer."""
    load: Callable[[], object]
    if isinstance(answer, str):
        text = swap_sides(answer) if mirrored else answer
        kind, digest, load = "text", digest_text(text), lambda: text
    else:
        image = ImageArtifact.from_pil(answer)
        if mirrored:
            image = ImageArtifact(PIXEL_EDITS["mirror"](image.pixels))
        kind, digest, load = "image", image.digest, image.to_pil
    return Step(runner.key("", 0, kind, digest), 0, load)


def _vectors_note(edit: str, unnamed: int, pairs: int) -> str:
    if not unnamed:
        return ""
    return f"{edit}: {unnamed} of {pairs} answers name no side, and are expected to stay the same"
