"""Facts of GenEval's metadata, checked in pictures by a detector and GenEval's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pytest_cepbench.artifacts import Failure, canonical_json
from pytest_cepbench.chains import Chain, ChainPlan, boxes
from pytest_cepbench.datasets.metadata_questions import prompt_questions
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.metrics.facts import Fact
from pytest_cepbench.metrics.geneval import (
    Prompt,
    QueryStyle,
    SelectionSettings,
    ToColor,
    judge,
    objects_by_class,
    parse_prompt,
    queries,
)
from pytest_cepbench.metrics.geneval.atoms import prompt_atoms
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.base import RequiredFeatures
from pytest_cepbench.suites.measures.color_classifier import JudgedImage, tell_colors
from pytest_cepbench.suites.measures.fact_checks import FactReading
from pytest_cepbench.suites.measures.vqa_questions import QuestionSettings

DETECTOR = "detector"


@dataclass(frozen=True)
class PromptSource:
    """The facts that the clauses of a GenEval prompt name; see `prompt_atoms`."""

    identity: str = "geneval-facts/1"

    def facts(self, sample: Sample) -> tuple[Fact, ...]:
        """One for each demand. Raises MeasurementError for metadata of another form."""
        prompt = _prompt(sample)
        return tuple(
            Fact(atom.kind, atom.words, question=question.text)
            for atom, question in zip(prompt_atoms(prompt), prompt_questions(prompt), strict=True)
        )


@dataclass(frozen=True)
class DetectorChecker:
    """Judges each demand of a prompt by itself, by GenEval's rules on what the detector finds.

    settings: of the rules.
    colors: "clip" where `color_encoder` tells them on cut-outs, "detector" for its own.
    """

    settings: SelectionSettings
    colors: str
    color_encoder: str
    lists: bool = False
    questions: QuestionSettings | None = None

    @property
    def identity(self) -> str:
        """Rules, thresholds, who tells colors."""
        rules = " ".join(f"{name}={value}" for name, value in asdict(self.settings).items())
        return f"detector/1 {rules}, colors by {self.colors}"

    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """The pictures, and what is cut out of them."""

        def query(sample: Sample, detector: BoundRole) -> str:
            return canonical_json(list(queries(_prompt(sample), _style(detector))))

        if not generations:
            return ()
        detected = RequiredFeatures(plan, generations, DETECTOR, query, stops_chain=False)
        if self.colors != "clip":
            return (detected,)
        return (detected, RequiredFeatures(plan, generations, self.color_encoder, cutouts=True))

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
        detector = chain_data.runner(DETECTOR)
        style = _style(detector.bound)
        asked = {chain.sample.id: queries(_prompt(chain.sample), style) for chain in chains}
        words = {name: list(own) for name, own in asked.items()}
        detected = boxes(chains, generation, words, detector, chain_data.store)
        images = [
            JudgedImage(chain, _prompt(chain.sample), objects_by_class(own, asked[chain.sample.id]))
            for chain, own in zip(chains, detected, strict=True)
            if not isinstance(own, Failure)
        ]
        colors = self._colors(images, generation, chain_data)
        read: dict[str, FactReading | Failure] = {
            image.chain.sample.id: Failure(told.kind, f"{self.color_encoder}: {told.detail}")
            if isinstance(told, Failure)
            else self._read(image, told, facts[image.chain.sample.id])
            for image, told in zip(images, colors, strict=True)
        }
        return [
            own if isinstance(own, Failure) else read[chain.sample.id]
            for chain, own in zip(chains, detected, strict=True)
        ]

    def _colors(
        self, images: Sequence[JudgedImage], generation: int, chain_data: ChainData
    ) -> Sequence[Mapping[ToColor, str] | Failure]:
        if self.colors == "clip":
            runner = chain_data.runner(self.color_encoder)
            return tell_colors(images, generation, self.settings, runner, chain_data.store)
        return [{} for _ in images]

    def _read(
        self, image: JudgedImage, colors: Mapping[ToColor, str], facts: Sequence[Fact]
    ) -> FactReading:
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
                verdict = judge(atom.demand, image.objects, colors, self.settings)
            except ValueError as error:  # a color that nobody told
                raise MeasurementError(
                    f"{error}: give colors = 'clip' and a color_encoder"
                ) from error
            answers.append(float(verdict.correct))
        return FactReading(tuple(answers))


def _style(detector: BoundRole) -> QueryStyle:
    return "photo" if detector.params.get("queries") == "free-text" else "class"


def _prompt(sample: Sample) -> Prompt:
    try:
        return parse_prompt(sample.metadata)
    except ValueError as error:
        raise MeasurementError(
            f"sample {sample.id!r} has no facts: its metadata is none of GenEval's form: {error}"
        ) from error
