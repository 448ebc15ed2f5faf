"""geneval and mgg: whether the images show what their prompts name, by GenEval's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from pytest_cepbench.artifacts import (
    Detection,
    Detections,
    Failure,
    canonical_json,
    digest_json,
    digest_text,
)
from pytest_cepbench.chains import Chain, RoleRunner, Step, load_link
from pytest_cepbench.chains.chain import naming_damage
from pytest_cepbench.chains.features import boxes
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, ModelError
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.measures.base import (
    ENCODER,
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    by_part,
    outcome_of_chain,
    parts_of,
)
from pytest_cepbench.measures.blindness import refuse_same
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.diversity import most_common
from pytest_cepbench.metrics.geneval import (
    ToColor,
    color_prompts,
    crop_object,
    judge,
    objects_to_color,
    overall_accuracy,
    zero_shot_color,
)
from pytest_cepbench.metrics.geneval_prompts import (
    GENEVAL,
    Prompt,
    QueryStyle,
    SelectionSettings,
    objects_by_class,
    parse_prompt,
    prompt_metadata,
    queries,
)
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.store import Store, Vector

CROP_VERSION = 1
"""Enters the keys of cut-outs; raised when they are cut in another way."""

_FEWEST_CUTS = 8
"""Of which one vector is too much: a few objects may all have the same color."""

DETECTOR = "detector"


class GenevalTable(MetricTable, frozen=True, kw_only=True):
    """geneval, mgg: whether what the prompt names is in the image, by GenEval's rules.

    Numbers that are left out are those of GenEval's released evaluator.
    threshold, counting_threshold: least confidence of a detection (exclusive), and that in
    counting.
    max_objects: most detections of a class that are looked at. max_overlap: intersection over union
    above which the less confident of two boxes of a class is dropped; 1 drops none.
    position_threshold: share of the summed sizes that two centers must be apart.
    colors: who tells them: "clip" (zero-shot on crops, by the `color_encoder`), or "detector" (one
    that does so by itself).
    color_encoder: the role of the dual encoder that tells colors.
    """

    threshold: float | None = None
    counting_threshold: float | None = None
    max_objects: int | None = None
    max_overlap: float | None = None
    position_threshold: float | None = None
    colors: Literal["clip", "detector"] = "clip"
    color_encoder: str = ENCODER


@dataclass
class PromptedImage:
    """One image of a chain, and what was found in it.

    prompt: that it is judged by.
    detections: everything that was found. objects: the same by class.
    colors: of the objects whose color is asked for, or why the encoder could not tell them.
    """

    chain: Chain
    prompt: Prompt
    detections: Detections
    objects: Mapping[str, Sequence[Detection]]
    colors: dict[ToColor, str] | Failure = field(default_factory=dict)


@dataclass
class RuledChain:
    """The judgements of the images of one chain.

    outcome: what stopped the chain, or which model failed at an image, if anything did.
    correct: at each generation; False too where there is no image.
    reasons: why not, of the first that is wrong.
    seen: digest of each image, and a number that stands for the boxes found in it.
    """

    outcome: CaseScores
    correct: list[bool] = field(default_factory=list)
    reasons: tuple[str, ...] = ()
    seen: list[tuple[str, int]] = field(default_factory=list)


class GenevalMeasure(Measure):
    """The share of right images: of the first one (GenEval), or over all generations (MGG).

    A prompt's score is the share of its images that are right, and a task's the mean over its
    prompts; the whole is the unweighted mean of the tasks, or with pool = "samples" the
    micro-average over all images, which is what the Telephone Game's released code prints.
    A prompt without an image is wrong. See `GenevalTable`.
    """

    def __init__(self, kind: str, name: str, table: GenevalTable, context: SuiteContext) -> None:
        """Raises SuiteError for a suite without text-first chains, or a setting out of range."""
        super().__init__(kind, name, table, context)
        self.plan = context.plan(name, "text")
        given = {f.name: getattr(table, f.name, None) for f in fields(SelectionSettings)}
        own: Any = {field: value for field, value in given.items() if value is not None}
        try:
            self.settings = replace(GENEVAL, **own)
        except ValueError as error:
            raise context.error(name, error) from error
        self.colors, self.color_encoder = table.colors, table.color_encoder
        if self.colors == "detector" and self.color_encoder != ENCODER:
            raise context.error(
                name,
                f"color_encoder = {self.color_encoder!r}: with colors = 'detector' none is asked",
            )
        last = 1 if kind == "geneval" else self.plan.generations
        self.generations = tuple(range(1, last + 1, 2))
        self.label = "GenEval" if kind == "geneval" else "MGG"
        rules = " ".join(f"{name}={value}" for name, value in asdict(self.settings).items())
        self.identity = (
            f"{kind}/1 {rules} variant=geneval, colors by {self.colors}, over {self.pool}"
        )

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The images of the generations that count, and what is cut out of them."""

        def query(sample: Sample, detector: BoundRole) -> str:
            return canonical_json(list(queries(prompt_of(sample), _style(detector))))

        plan, generations = self.plan, self.generations
        detected = RequiredFeatures(plan, generations, DETECTOR, query, stops_chain=False)
        if self.colors != "clip":
            return (detected,)
        return (detected, RequiredFeatures(plan, generations, self.color_encoder, cutouts=True))

    def read(self, case: Case, samples: Sequence[Sample], data: ChainData) -> dict[str, RuledChain]:
        """The judgements; the detector looks at the images, and the encoder at cut-outs.

        Raises MeasurementError for a sample without a prompt, and what the models raise.
        """
        data.require_recorded("text", self.generations)

        def rule(chains: Sequence[Chain]) -> dict[str, RuledChain]:
            detector = data.runner(DETECTOR)
            style = _style(detector.bound)
            ruled = {c.sample.id: RuledChain(outcome_of_chain(c, self.plan)) for c in chains}
            for generation in self.generations:
                able = [chain for chain in chains if chain.has(generation)]
                prompts = {chain.sample.id: prompt_of(chain.sample) for chain in able}
                asked = {name: queries(prompt, style) for name, prompt in prompts.items()}
                words = {name: list(own) for name, own in asked.items()}
                images: dict[str, PromptedImage | Failure] = {}
                detected = boxes(able, generation, words, detector, data.store)
                for chain, found in zip(able, detected, strict=True):
                    name = chain.sample.id
                    if isinstance(found, Failure):
                        images[name] = found
                        continue
                    objects = objects_by_class(found, asked[name])
                    images[name] = PromptedImage(chain, prompts[name], found, objects)
                if self.colors == "clip":
                    seen = [own for own in images.values() if isinstance(own, PromptedImage)]
                    self._tell_colors(seen, generation, data)
                for name, own in ruled.items():
                    own.correct.append(False)
                    if (image := images.get(name)) is not None:
                        self._rule(name, own, image, generation)
            return ruled

        return data.per_chain(self, "text", samples, rule)

    def measure(self, case: Case, data: ChainData) -> Measured:
        """One score per prompt."""
        parts, samples = parts_of(case, data.dataset)
        ruled = self.read(case, samples, data)
        correct = np.array([ruled[sample.id].correct for sample in samples])
        tasks = [sample.categories[0] for sample in samples]
        curve = correct.mean(axis=0)
        if self.pool != "samples":
            curve = np.array([overall_accuracy(column, tasks) for column in correct.T])
        blind = None
        common = most_common(pair for chain in ruled.values() for pair in chain.seen)
        if common is not None and common.constant:
            found = "nothing" if common.answer == hash(()) else "the same boxes"
            blind = Blindness(f"the detector found {found} in {common} different images", 1.0)
        clauses = [
            [s.id, prompt_metadata(prompt_of(s))] for s in parts_of(case, data.population)[1]
        ]
        return Measured(
            scores=by_part(parts, {n: float(np.mean(own.correct)) for n, own in ruled.items()}),
            samples=samples,
            outcomes=[ruled[sample.id].outcome for sample in samples],
            curve=tuple(curve.tolist()) if len(self.generations) > 1 else (),
            identity={"clauses": digest_json(clauses)[:16]},
            shares=True,
            blind=blind,
        )

    def show(self, case: Case, sample_id: str, data: ChainData) -> ChainExcerpt:
        """The chain, 1 at the images that are right, and why the first other one is not."""
        samples = data.named(sample_id)
        judged = self.read(case, samples, data)[sample_id]
        chain = data.chains("text", samples)[sample_id]
        marks = zip(self.generations, judged.correct, strict=True)
        return ChainExcerpt(
            chain,
            {generation: float(correct) for generation, correct in marks if chain.has(generation)},
            judged.outcome.failure,
            chain.failed_at,
            "; ".join(judged.reasons),
        )

    def _rule(
        self, name: str, own: RuledChain, image: PromptedImage | Failure, generation: int
    ) -> None:
        """Add the judgement of one image to its chain's."""
        if isinstance(image, Failure):
            own.outcome = CaseScores(name, image, DETECTOR)
            return
        # Equal for equal boxes of equal confidence, whatever was asked for.
        found = hash(tuple((box.box, box.score) for box in image.detections.found))
        own.seen.append((image.chain.links[generation].digest, found))
        if isinstance(image.colors, Failure):
            if own.outcome.blamed != DETECTOR:
                own.outcome = CaseScores(name, image.colors, self.color_encoder)
            return
        lacking = objects_to_color(image.prompt, image.objects, self.settings)
        if lacking and self.colors != "clip":
            raise MeasurementError(
                f"{self.name}: colors = {self.colors!r}, and the detector tells none (of "
                f"{lacking[0].name!r} in {name!r}): use colors = 'clip'"
            )
        wrong = judge(image.prompt, image.objects, image.colors, self.settings)
        own.correct[-1] = not wrong
        if wrong and not own.reasons:
            where = f"generation {generation}: " if len(self.generations) > 1 else ""
            own.reasons = tuple(f"{where}{reason}" for reason in wrong)

    def _tell_colors(
        self, images: Sequence[PromptedImage], generation: int, data: ChainData
    ) -> None:
        """Add to each image the color of every object whose color its prompt asks for.

        A failure where the encoder gave no usable vector of one of them. Raises MeasurementError
        where it gives none for the names of colors.
        """
        encoder, store = data.runner(self.color_encoder), data.store
        wanted = [
            (image, target)
            for image in images
            for target in objects_to_color(image.prompt, image.objects, self.settings)
        ]
        chains = [image.chain for image, _ in wanted]
        steps = []
        for chain, (_, target) in zip(chains, wanted, strict=True):
            link, detection = chain.links[generation], target.detection
            # Named by the image and the place, so that what is known needs no decoding.
            place = {"crop": CROP_VERSION, "image": link.digest, "box": list(detection.box)}
            if detection.mask is not None:
                place["mask"] = asdict(detection.mask)
            load = partial(_cut_out, chain, generation, detection, store)
            steps.append(Step(encoder.key("", 0, "crop", digest_json(place)), 0, load))
        with naming_damage(chains, generation):
            vectors = encoder.ask("encode_images", steps)
        cut_outs = {
            step.key: vector
            for step, vector in zip(steps, vectors, strict=True)
            if isinstance(vector, np.ndarray)
        }
        refuse_same(encoder.bound.spec, "cut-out", cut_outs, _FEWEST_CUTS)
        names = {target.name: _name_vectors(target.name, encoder) for _, target in wanted}
        for (image, target), vector in zip(wanted, vectors, strict=True):
            if isinstance(vector, Failure):
                image.colors = vector
            elif not isinstance(image.colors, Failure):
                assert isinstance(vector, np.ndarray)
                image.colors[target] = zero_shot_color(vector[None], names[target.name])[0]


def _style(detector: BoundRole) -> QueryStyle:
    return "photo" if detector.params.get("queries") == "free-text" else "class"


def _cut_out(chain: Chain, generation: int, detection: Detection, store: Store) -> object:
    """What a detector found in a chain's image; None where the image is lost."""
    image = load_link(chain, generation, store)
    try:
        return None if image is None else crop_object(image, detection)
    except ValueError as error:
        raise ModelError(
            f"what the detector found in {chain.sample.id!r} cannot be cut out: {error}"
        ) from error


def _name_vectors(name: str, encoder: RoleRunner) -> Vector:
    """(colors, templates, D) vectors of the texts that name a class in each color."""
    texts = color_prompts(name)
    steps = [
        Step(encoder.key("", 0, "text", digest_text(text)), 0, partial(str, text))
        for row in texts
        for text in row
    ]
    vectors = encoder.ask("encode_texts", steps)
    if any(isinstance(vector, Failure) for vector in vectors):
        raise MeasurementError(
            f"{encoder.bound.spec} gives no usable vectors for the colors of {name!r}"
        )
    rows: Vector = np.stack(vectors)  # type: ignore[arg-type] # no failure is left
    refuse_same(
        encoder.bound.spec, "text", dict(zip([step.key for step in steps], rows, strict=True))
    )
    return rows.reshape(len(texts), len(texts[0]), -1)


def prompt_of(sample: Sample) -> Prompt:
    """The prompt of GenEval's form in a sample's metadata. Raises MeasurementError without one."""
    try:
        return parse_prompt(sample.metadata)
    except ValueError as error:
        raise MeasurementError(
            f"sample {sample.id!r} has no clauses to judge its images by: {error}"
        ) from error
