"""equivariance: whether edits of the starts appear in what models make of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_text
from pytest_cepbench.chains import Chain, ChainPlan, Modality, RoleRunner, Step, load_link
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
from pytest_cepbench.errors import DamagedChainsError, MeasurementError, unknown_name
from pytest_cepbench.measures.base import (
    ENCODER,
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    by_category,
    everyone,
    grower,
    outcome_of_chain,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import refuse_same
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


@dataclass(frozen=True, kw_only=True)
class AnswerComparison(ABC):
    """A way to compare the answers of a pair.

    at: the generation of the answers.
    identity: version and settings that decide the scores.
    reader: the role that reads the answers; None where none does.
    span: the distance of the best from the worst score.
    """

    at: int
    identity: str
    reader: str | None = None
    span: float = 1.0

    @abstractmethod
    def read(self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """Have everything made that the scores of these samples need. Raises as reading chains."""

    @abstractmethod
    def score(
        self, plan: ChainPlan, edit: str, pairs: Sequence[EditedPair], chain_data: ChainData
    ) -> PairScores:
        """The scores of the pairs of an edit. Raises MeasurementError where there can be none."""


def load_answer(chain: Chain, generation: int, store: Store) -> str | Image.Image:
    """A chain's artifact. Raises DamagedChainsError where a stored image is damaged."""
    answer: Any = load_link(chain, generation, store)
    if answer is None:
        key = chain.links[generation].key
        raise DamagedChainsError([] if key is None else [key])
    assert isinstance(answer, str | Image.Image)
    return answer


ScoreName = Literal["both", "followed", "kept"]


@dataclass(frozen=True, kw_only=True)
class FactComparison(AnswerComparison):
    """Compares what answers say of a generated scene, fact by fact.

    score_name: which of the two shares is the score of a pair, or their product.
    """

    score_name: ScoreName

    def read(self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The chains: scenes are read when they are scored, which takes no model."""
        chain_data.chains(plan.start, samples)

    def score(
        self, plan: ChainPlan, edit: str, pairs: Sequence[EditedPair], chain_data: ChainData
    ) -> PairScores:
        """Followed, kept, or their product, of each pair. Raises MeasurementError for no scenes."""
        samples = {chain.sample.id: chain.sample for p in pairs for chain in (p.before, p.after)}
        scenes = chain_data.per_chain(
            ("scenes of answers", self.at),
            plan.start,
            list(samples.values()),
            lambda chains: {c.sample.id: self._scene(c, chain_data.store) for c in chains},
        )
        scores: dict[str, EditScore] = {}
        remarks: dict[str, str] = {}
        read: list[EditedFacts] = []
        of_pair: Callable[[EditScore], float] = attrgetter(self.score_name)
        changes = edit not in UNSEEN_EDITS
        for pair in pairs:
            before, after = scenes[pair.before.sample.id], scenes[pair.name]
            if before is None or after is None:
                scores[pair.name], remarks[pair.name] = FAILED, "an answer is missing"
                continue
            expected: Scene | None = before
            if changes:
                made = pair.after.sample.edit
                assert made is not None
                if made.name not in SCENE_EDITS or "scene" not in pair.after.sample.metadata:
                    raise MeasurementError(
                        f"sample {pair.name!r} is no generated scene, and compare = 'facts' reads "
                        "scenes: set compare = 'vectors'"
                    )
                expected = SceneEdit.read(made.name, made.target).apply(before)
            facts = EditedFacts(
                pair.after.sample.unit,
                scene_facts(before),
                None if expected is None else scene_facts(expected),
                scene_facts(after),
            )
            read.append(facts)
            score = edit_score(facts.before, facts.expected, facts.after, changes=changes)
            scores[pair.name] = score
            # Only words of the world are quoted: an answer may hold anything.
            remarks[pair.name] = (
                f"followed {score.followed:.2f}, kept {score.kept:.2f}; compared with "
                f"{pair.before.sample.id!r}, read there as {caption(before)!r}"
            ) + (
                ", which has not the object that is edited"
                if expected is None
                else f"; expected here: {caption(expected)!r}"
            )
        note = ""
        if count := len(scores):
            followed = fsum(score.followed for score in scores.values()) / count
            kept = fsum(score.kept for score in scores.values()) / count
            note = f"{edit}: edit followed {followed:.3f}, rest kept {kept:.3f}, {count} pairs"
        return PairScores(
            values={name: of_pair(score) for name, score in scores.items()},
            floor=chance_level(read, of_pair, changes=changes),
            remarks=remarks,
            note=note,
        )

    def _scene(self, chain: Chain, store: Store) -> Scene | None:
        """The scene of a chain's answer; None where there is no answer."""
        if not chain.has(self.at):
            return None
        answer = load_answer(chain, self.at, store)
        if isinstance(answer, str):
            return parse_caption(answer)
        return parse_image(ImageArtifact.from_pil(answer))


VECTOR_EDITS = tuple(PIXEL_EDITS)
"""Edits that can be made in any answer: in a text by rule, in an image by its pixels."""

Encoded = Vector | Failure | None
"""What an encoder made of an answer; None where there is no answer."""


@dataclass(frozen=True, kw_only=True)
class VectorComparison(AnswerComparison):
    """Compares answers by the cosine of an encoder's vectors."""

    reader: str

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
        spec = chain_data.runner(self.reader).bound.spec
        refuse_same(spec, plan.modality(self.at), answers)
        cosines = np.zeros(len(pairs))
        if whole:
            cosines[whole] = cosine_to_start(first[whole], second[whole])[:, 0]
        units = [pair.after.sample.unit for pair in pairs]
        homes = [pair.after.sample.categories[0] for pair in pairs]
        chance = chance_similarities(first, second, units, homes)
        names = [pair.name for pair in pairs]
        texts = [p.before.links[self.at].text for p in pairs if p.before.has(self.at)]
        unnamed = mirrored * sum(text is not None and swap_sides(text) == text for text in texts)
        note = (
            f"{edit}: {unnamed} of {len(pairs)} answers name no side, and are expected to stay the "
            "same"
        )
        return PairScores(
            values=dict(zip(names, cosines.tolist(), strict=True)),
            floor=None if chance is None else float(chance.mean()),
            failures=failures,
            note=note if unnamed else "",
        )

    def _vectors(
        self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData, *, mirrored: bool
    ) -> dict[str, Encoded]:
        """The vector of each sample's answer, by sample id, or of the mirrored answer."""

        def read(chains: Sequence[Chain]) -> dict[str, Encoded]:
            runner, store = chain_data.runner(self.reader), chain_data.store
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

        key = ("vectors of edited answers", self.at, self.reader, mirrored)
        return chain_data.per_chain(key, plan.start, samples, read)


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


class EquivarianceTable(MetricTable, frozen=True, kw_only=True):
    """equivariance: whether edits of the starts ([data] edits) appear in the answers.

    start: which chains; "image" measures the describer, "text" the generator, at generation 1.
    at: the generation of the answers, 1 when left out.
    compare: "facts" of generated scenes, or "vectors" of an encoder.
    score: of facts, the product of the share that followed the edit and the share that kept still
        ("both"), or one of the two.
    encoder: the role whose vectors are compared.
    edits: those that are cases; all of the data set's that the chains can show when left out.
    """

    start: Modality | None = None
    at: int = 1
    compare: Literal["facts", "vectors"] = "facts"
    score: ScoreName = "both"
    encoder: str = ENCODER
    edits: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class EquivarianceMeasure(Measure):
    """One score per edited sample, by edit; the whole is the mean of the edits."""

    plan: ChainPlan
    at: int
    comparison: AnswerComparison

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The answers, to starts that were edited and to those that were not."""
        return (RequiredFeatures(self.plan, (self.at,), self.comparison.reader),)

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The answers, and their vectors where these are compared."""
        chain_data.require_recorded(self.plan.start, (self.at,))
        self.comparison.read(self.plan, samples, chain_data)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """A score per edited sample. Raises MeasurementError where no pair is left."""
        samples = everyone(by_category(case, chain_data))
        paired, unchanged = self._pairs(case, samples, chain_data)
        able = {edit: pairs for edit, pairs in paired.items() if pairs}
        if not able:
            raise MeasurementError(
                f"{case.key}: {len(samples)} samples hold no pair of a start and the same start "
                "edited that differ: play more samples of each category"
            )
        scored = {
            edit: self.comparison.score(self.plan, edit, pairs, chain_data)
            for edit, pairs in able.items()
        }
        chains = {
            chain.sample.id: chain
            for pairs in able.values()
            for pair in pairs
            for chain in (pair.before, pair.after)
        }
        failures = {name: f for scores in scored.values() for name, f in scores.failures.items()}
        for pairs in able.values():  # a pair has a score of both or none
            failures |= {
                p.name: failures[b] for p in pairs if (b := p.before.sample.id) in failures
            }
        outcomes = []
        for name, chain in sorted(chains.items()):
            if name in failures:
                outcomes.append(CaseScores(name, failures[name], self.comparison.reader))
            else:  # what stops a chain after its answer has no part in the score
                stopped = not chain.has(self.at)
                outcomes.append(outcome_of_chain(chain, self.plan) if stopped else CaseScores(name))
        notes = []
        for edit in paired:
            if edit in scored and scored[edit].note:
                notes.append(scored[edit].note)
            if count := unchanged[edit]:
                notes.append(f"{edit}: {count} pairs left out, whose starts it does not change")
        floors = [scores.floor for scores in scored.values() if scores.floor is not None]
        return Measured(
            scores={edit: scores.values for edit, scores in scored.items()},
            samples=[chains[name].sample for name in sorted(chains)],
            outcomes=outcomes,
            notes=tuple(notes),
            floor=fsum(floors) / len(floors) if len(floors) == len(scored) else None,
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain from the edited start, and what its answer was compared with."""
        (sample,) = chain_data.named(sample_id)
        origin = [] if sample.edit is None else chain_data.named(sample.edit.of)
        chain = chain_data.chains(self.plan.start, [sample])[sample_id]
        for edit, pairs in self._pairs(case, [*origin, sample], chain_data)[0].items():
            if pairs:
                scores = self.comparison.score(self.plan, edit, pairs, chain_data)
                marks = {self.at: scores.values[sample_id]} if chain.has(self.at) else {}
                remark = scores.remarks.get(sample_id, "")
                return ChainExcerpt(chain, marks, chain.failure, chain.failed_at, remark)
        return ChainExcerpt(chain, {}, chain.failure, chain.failed_at)

    def _pairs(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> tuple[dict[str, list[EditedPair]], dict[str, int]]:
        """The pairs of each edit, in the order of the samples, and how many were left out of each.

        A pair whose starts are equal, since the edit changes nothing in them, is left out: an
        answer that does not change is no success there. So is, uncounted, an edited sample whose
        other one is not among the samples.
        """
        chain_data.require_recorded(self.plan.start, (self.at,))
        chains = chain_data.chains(self.plan.start, samples)
        part = case.key.part
        edits = (part,) if part in self.own_parts else self.own_parts
        paired: dict[str, list[EditedPair]] = {edit: [] for edit in edits}
        unchanged = dict.fromkeys(edits, 0)
        for sample in samples:
            edit = sample.edit
            if edit is None or edit.name not in paired or edit.of not in chains:
                continue
            pair = EditedPair(chains[edit.of], chains[sample.id])
            if pair.before.links[0].digest == pair.after.links[0].digest:
                unchanged[edit.name] += 1
            else:
                paired[edit.name].append(pair)
        return paired, unchanged


def make_equivariance(
    kind: str, name: str, table: EquivarianceTable, context: SuiteContext
) -> EquivarianceMeasure:
    """The measure of a table; there is one kind.

    Raises SuiteError where the suite's data has no edits, or none that the answers can show; for an
    edit that the data has not; for a generation that the chains do not reach.
    """
    plan = context.plan(name, table.start)
    if not 1 <= table.at <= plan.generations:
        raise context.error(
            name, f"at = {table.at}, and the chains have {plan.generations} generations"
        )
    if not context.edits:
        raise context.error(
            name,
            'the data has no edited starts: name some under [data], such as edits = ["mirror"]',
        )
    for edit in table.edits or ():
        if edit not in context.edits:
            raise context.error(name, f"{unknown_name('edit of the data', edit, context.edits)}")
    # A text says nothing of brightness, so a text-first chain has nothing to show.
    shown = [e for e in context.edits if plan.start == "image" or e not in UNSEEN_EDITS]
    edits = tuple(edit for edit in shown if table.edits is None or edit in table.edits)
    if not edits:
        raise context.error(name, f"a text is the same after the edits {', '.join(context.edits)}")
    comparison: AnswerComparison
    if table.compare == "facts":
        comparison = FactComparison(
            at=table.at, identity=f"facts/1 {table.score}", score_name=table.score
        )
    else:
        if foreign := [edit for edit in edits if edit not in VECTOR_EDITS]:
            raise context.error(
                name,
                f"the edit {foreign[0]!r} cannot be made in any text or image, so vectors do "
                f"not show it: set compare = 'facts', or edits = {list(VECTOR_EDITS)}",
            )
        if table.score != "both":
            problem = f"score = {table.score!r} is of facts, and vectors are compared"
            raise context.error(name, problem)
        identity = f"cosine/1 by {table.encoder}"
        comparison = VectorComparison(
            at=table.at, identity=identity, reader=table.encoder, span=2.0
        )
    return EquivarianceMeasure(
        **table.shared(name, "samples", "overall"),
        label=f"equivariance [{grower(plan, table.at)}]",
        identity=f"equivariance/1 {comparison.identity}, at {table.at}, edits {' '.join(edits)}",
        own_parts=edits,
        span=comparison.span,
        plan=plan,
        at=table.at,
        comparison=comparison,
    )
