"""Facts of GenEval's metadata, checked in pictures by a detector and GenEval's rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import repeat

import numpy as np

from pytest_cepbench.artifacts import (
    Detection,
    Detections,
    Failure,
    canonical_json,
    digest_json,
    digest_text,
)
from pytest_cepbench.chains import (
    Chain,
    ChainPlan,
    RoleRunner,
    Step,
    boxes,
    load_link,
    naming_damage,
)
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, ModelError
from pytest_cepbench.measures.base import RequiredFeatures
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.fact_checks import FactReading
from pytest_cepbench.measures.sanity_checks import refuse_same
from pytest_cepbench.measures.vqa_questions import QuestionSettings
from pytest_cepbench.metrics.facts import Fact
from pytest_cepbench.metrics.geneval import (
    ToColor,
    color_prompts,
    crop_object,
    judge,
    objects_to_color,
    zero_shot_color,
)
from pytest_cepbench.metrics.geneval_prompts import (
    Prompt,
    QueryStyle,
    SelectionSettings,
    objects_by_class,
    parse_prompt,
    prompt_atoms,
    queries,
)
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.store import Store, Vector

CROP_VERSION = 1
"""Enters the keys of cut-outs; raised when they are cut in another way."""

_FEWEST_CUTS = 8
"""Of which one vector is too much: a few objects may all have the same color."""


@dataclass(frozen=True)
class PromptedImage:
    """One image of a chain, the prompt it is judged by, and the objects found in it by class."""

    chain: Chain
    prompt: Prompt
    objects: Mapping[str, Sequence[Detection]]


def tell_colors(
    images: Sequence[PromptedImage],
    generation: int,
    settings: SelectionSettings,
    encoder: RoleRunner,
    store: Store,
) -> list[dict[ToColor, str] | Failure]:
    """For each image the color of every object whose color its prompt asks for.

    A failure where the encoder gave no usable vector of one of them.
    generation: at which the images stand in their chains. Raises MeasurementError where the encoder
    gives no vectors for the names of colors, ModelError and the others of the encoder,
    DamagedChainsError where a stored image is damaged.
    """
    wanted = [
        (number, target)
        for number, image in enumerate(images)
        for target in objects_to_color(image.prompt, image.objects, settings)
    ]
    chains = [images[number].chain for number, _ in wanted]
    steps = [
        _crop_step(chain, generation, target.detection, encoder, store)
        for chain, (_, target) in zip(chains, wanted, strict=True)
    ]
    with naming_damage(chains, generation):
        vectors = encoder.ask("encode_images", steps)
    cut_outs = {
        step.key: vector
        for step, vector in zip(steps, vectors, strict=True)
        if isinstance(vector, np.ndarray)
    }
    refuse_same(encoder.bound.spec, "cut-out", cut_outs, _FEWEST_CUTS)
    names = {target.name: _name_vectors(target.name, encoder) for _, target in wanted}
    colors: list[dict[ToColor, str]] = [{} for _ in images]
    failed: dict[int, Failure] = {}
    for (number, target), vector in zip(wanted, vectors, strict=True):
        if isinstance(vector, Failure):
            failed[number] = vector
        else:
            assert isinstance(vector, np.ndarray)
            colors[number][target] = zero_shot_color(vector[None], names[target.name])[0]
    return [failed.get(number, own) for number, own in enumerate(colors)]


def _crop_step(
    chain: Chain, generation: int, detection: Detection, encoder: RoleRunner, store: Store
) -> Step:
    link = chain.links[generation]
    # Named by the image and the place, so that what is known needs no decoding.
    place = {"crop": CROP_VERSION, "image": link.digest, "box": list(detection.box)}
    if detection.mask is not None:
        place["mask"] = asdict(detection.mask)

    def load() -> object:
        image = load_link(chain, generation, store)
        try:
            return None if image is None else crop_object(image, detection)
        except ValueError as error:
            raise ModelError(
                f"what the detector found in {chain.sample.id!r} cannot be cut out: {error}"
            ) from error

    return Step(encoder.key("", 0, "crop", digest_json(place)), 0, load)


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


DETECTOR = "detector"


@dataclass(frozen=True)
class ReadImage:
    """What was found in the image of a chain.

    detections: everything, or why the detector could not look.
    image: the same by class, with the prompt; None where it could not.
    colors: of the objects whose color is asked for, or why the encoder could not tell them.
    """

    detections: Detections | Failure
    image: PromptedImage | None
    colors: Mapping[ToColor, str] | Failure


@dataclass(frozen=True)
class PictureReader:
    """What a detector, and an encoder of cut-outs, find in pictures for GenEval's rules.

    metric: its name, for messages.
    settings: of the rules.
    colors: "clip" where `color_encoder` tells them on cut-outs, "detector" for a detector that does
        so by itself, "query" where it is asked for them in words.
    """

    metric: str
    settings: SelectionSettings
    colors: str
    color_encoder: str

    @property
    def identity(self) -> str:
        """Rules, thresholds, who tells colors."""
        rules = " ".join(f"{name}={value}" for name, value in asdict(self.settings).items())
        return f"{rules}, colors by {self.colors}"

    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """The pictures, and what is cut out of them."""

        def query(sample: Sample, detector: BoundRole) -> str:
            return canonical_json(list(queries(prompt_of(sample), self._style(detector))))

        if not generations:
            return ()
        detected = RequiredFeatures(plan, generations, DETECTOR, query, stops_chain=False)
        if self.colors != "clip":
            return (detected,)
        return (detected, RequiredFeatures(plan, generations, self.color_encoder, cutouts=True))

    def read(
        self, chains: Sequence[Chain], generation: int, chain_data: ChainData
    ) -> list[ReadImage]:
        """Look at every chain's image at a generation, which all of them have.

        Raises MeasurementError for a sample without a prompt, and what its models raise.
        """
        detector = chain_data.runner(DETECTOR)
        style = self._style(detector.bound)
        prompts = [prompt_of(chain.sample) for chain in chains]
        asked = [queries(prompt, style) for prompt in prompts]
        words = {chain.sample.id: list(own) for chain, own in zip(chains, asked, strict=True)}
        detected = boxes(chains, generation, words, detector, chain_data.store)
        images = [
            None
            if isinstance(found, Failure)
            else PromptedImage(chain, prompt, objects_by_class(found, own))
            for chain, prompt, own, found in zip(chains, prompts, asked, detected, strict=True)
        ]
        seen = [image for image in images if image is not None]
        colors: Iterator[Mapping[ToColor, str] | Failure] = repeat({})
        if self.colors == "clip":
            runner = chain_data.runner(self.color_encoder)
            colors = iter(tell_colors(seen, generation, self.settings, runner, chain_data.store))
        return [
            ReadImage(found, image, {} if image is None else next(colors))
            for found, image in zip(detected, images, strict=True)
        ]

    def _style(self, detector: BoundRole) -> QueryStyle:
        free = detector.params.get("queries") == "free-text"
        if self.colors != "query":
            return "photo" if free else "class"
        if not free:
            raise MeasurementError(
                f"{self.metric}: colors = 'query' asks the detector for colors in words, and "
                f"{detector.spec} knows a fixed set of classes: use an "
                "open-vocabulary detector (OWLv2), or colors = 'clip'"
            )
        return "colored photo"


def prompt_of(sample: Sample) -> Prompt:
    """The prompt of GenEval's form in a sample's metadata. Raises MeasurementError without one."""
    try:
        return parse_prompt(sample.metadata)
    except ValueError as error:
        raise MeasurementError(
            f"sample {sample.id!r} has no clauses to judge its images by: {error}"
        ) from error


@dataclass(frozen=True)
class PromptSource:
    """The facts that the clauses of a GenEval prompt name; see `prompt_atoms`."""

    identity: str = "geneval-facts/1"

    def facts(self, sample: Sample) -> tuple[Fact, ...]:
        """One for each demand. Raises MeasurementError for metadata of another form."""
        from pytest_cepbench.datasets.metadata_questions import prompt_questions

        try:
            prompt = parse_prompt(sample.metadata)
        except ValueError as error:
            raise MeasurementError(
                f"sample {sample.id!r} has no facts: its metadata is none of GenEval's form: "
                f"{error}"
            ) from error
        return tuple(
            Fact(atom.kind, atom.words, question=question.text)
            for atom, question in zip(prompt_atoms(prompt), prompt_questions(prompt), strict=True)
        )


@dataclass(frozen=True)
class DetectorChecker:
    """Judges each demand of a prompt by itself, by GenEval's rules on what the detector finds."""

    reader: PictureReader
    lists: bool = False
    questions: QuestionSettings | None = None

    @property
    def identity(self) -> str:
        """Rules, thresholds, who tells colors."""
        return f"detector/1 {self.reader.identity}"

    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """The pictures, and what is cut out of them."""
        return self.reader.required_features(plan, generations)

    def check(
        self,
        chains: Sequence[Chain],
        generation: int,
        facts: Mapping[str, Sequence[Fact]],
        chain_data: ChainData,
    ) -> list[FactReading | Failure]:
        """1 for each demand that is met, else 0.

        Raises MeasurementError for a fact that is none of the sample's metadata, and where the
        detector is to tell colors and tells none.
        """
        return [
            self._judge(own, facts[chain.sample.id])
            for chain, own in zip(
                chains, self.reader.read(chains, generation, chain_data), strict=True
            )
        ]

    def _judge(self, own: ReadImage, facts: Sequence[Fact]) -> FactReading | Failure:
        if isinstance(own.detections, Failure):
            return own.detections
        if isinstance(own.colors, Failure):
            return Failure(own.colors.kind, f"{self.reader.color_encoder}: {own.colors.detail}")
        image = own.image
        assert image is not None
        atoms = {(atom.kind, atom.words): atom for atom in prompt_atoms(image.prompt)}
        answers = []
        for fact in facts:
            atom = atoms.get((fact.kind, fact.words))
            if atom is None:
                raise MeasurementError(
                    f"sample {image.chain.sample.id!r}: the detector checks the facts of GenEval's "
                    f'metadata alone, and {str(fact)!r} is none: give facts = "geneval"'
                )
            try:
                verdict = judge(atom.demand, image.objects, own.colors, self.reader.settings)
            except ValueError as error:  # a color that nobody told
                raise MeasurementError(
                    f"{error}: give colors = 'clip' and a color_encoder"
                ) from error
            answers.append(float(verdict.correct))
        return FactReading(tuple(answers))
