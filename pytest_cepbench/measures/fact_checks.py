"""Where the facts of samples come from, and what checks them in texts and in pictures.

`FactSource` and `FactChecker` are the contract; a suite names both under `[metrics.facts]`. The
embedded world's are here: its scenes, read by its grammar and by its rules of sight; and questions,
answered by a VQA model. GenEval's are in `geneval_facts`; `fact_registry` has all their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from PIL.Image import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.chains import Chain, ChainPlan, load_link, naming_damage
from pytest_cepbench.datasets.questions import FactQuestion
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import (
    WORLD_VERSION,
    Scene,
    parse_caption,
    parse_image,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.questions import SCENE_FACTS, scene_facts
from pytest_cepbench.errors import DamagedInputsError, MeasurementError
from pytest_cepbench.measures.base import RequiredFeatures
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.vqa_questions import VQA, QuestionSettings, own_questions
from pytest_cepbench.metrics.facts import Fact
from pytest_cepbench.models.binding import BoundRole


@dataclass(frozen=True)
class FactReading:
    """What a checker found of one sample's facts in one artifact.

    answers: for each fact that was asked about, in its order, how surely it holds, in [0, 1]; None
    where the checker gave no answer, which no other number stands for.
    claimed: every fact that the artifact claims, also those of no sample; None where the checker
    can only be asked about given facts.
    controls: how surely it gave the right answers to control questions, where it was asked any.
    """

    answers: tuple[float | None, ...]
    claimed: frozenset[Fact] | None = None
    controls: tuple[float, ...] = ()


class FactSource(Protocol):
    """What is true of a sample."""

    @property
    def identity(self) -> str:
        """Version and settings that decide which facts a sample has, in one line."""

    def facts(self, sample: Sample) -> tuple[Fact, ...]:
        """The facts of a sample, at least one, no two equal.

        Raises MeasurementError naming the sample where it has none, or one of an unknown kind.
        """


class FactChecker(Protocol):
    """What checks facts in one modality's artifacts."""

    @property
    def identity(self) -> str:
        """Version and settings that decide the answers, in one line."""

    @property
    def lists(self) -> bool:
        """Whether readings say what else is claimed, so that there is precision."""

    @property
    def questions(self) -> QuestionSettings | None:
        """How it asks a VQA model, which control questions have to show to be one that sees; None
        where it asks none.
        """

    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """What it reads of chains at generations of its modality; see `RequiredFeatures`."""

    def check(
        self,
        chains: Sequence[Chain],
        generation: int,
        facts: Mapping[str, Sequence[Fact]],
        chain_data: ChainData,
    ) -> list[FactReading | Failure]:
        """Check every chain's artifact at a generation, which all of them have.

        facts: of each sample, by id. A failure is of the whole artifact: no fact has an answer.
        Raises DamagedChainsError as `chains.trace` does, and what its models raise.
        """


def read_claims(claimed: frozenset[Fact], facts: Sequence[Fact]) -> FactReading:
    """The reading of an artifact whose facts are all listed: 1 for what is claimed, else 0."""
    return FactReading(tuple(float(fact in claimed) for fact in facts), claimed)


@dataclass(frozen=True)
class SceneSource:
    """The facts of the generated scene that a sample was drawn from."""

    identity: str = SCENE_FACTS

    def facts(self, sample: Sample) -> tuple[Fact, ...]:
        """Those of its scene. Raises MeasurementError for a sample without one."""
        try:
            return scene_facts(sample_scene(sample))
        except (KeyError, TypeError, ValueError) as error:
            raise MeasurementError(
                f"sample {sample.id!r} has no facts: its metadata holds no generated scene, as the "
                "loaders shapes and shapes-tasks give one; leave [metrics.facts] out, or name "
                "another source of facts"
            ) from error


@dataclass(frozen=True)
class SceneChecker:
    """Reads texts by the grammar of the world and pictures by its rules; it knows every fact."""

    identity: str = f"{WORLD_VERSION} {SCENE_FACTS}"
    lists: bool = True
    questions: QuestionSettings | None = None

    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """The chains alone: no model reads them."""
        return (RequiredFeatures(plan, generations, None),) if generations else ()

    def check(
        self,
        chains: Sequence[Chain],
        generation: int,
        facts: Mapping[str, Sequence[Fact]],
        chain_data: ChainData,
    ) -> list[FactReading | Failure]:
        """The scene of each artifact, fact by fact."""
        with naming_damage(chains, generation):
            claims = _claims(chains, generation, chain_data)
        return [
            read_claims(claimed, facts[chain.sample.id])
            for chain, claimed in zip(chains, claims, strict=True)
        ]


def _claims(
    chains: Sequence[Chain], generation: int, chain_data: ChainData
) -> list[frozenset[Fact]]:
    """The facts that each artifact claims. Raises DamagedInputsError naming the damaged ones."""
    artifacts = [load_link(chain, generation, chain_data.store) for chain in chains]
    damaged = [place for place, artifact in enumerate(artifacts) if artifact is None]
    if damaged:
        raise DamagedInputsError(damaged)
    return [frozenset(scene_facts(_scene(artifact))) for artifact in artifacts]


def _scene(artifact: str | Image) -> Scene:
    if isinstance(artifact, str):
        return parse_caption(artifact)
    return parse_image(ImageArtifact.from_pil(artifact))


# -- facts that questions ask for, checked by a VQA model ------------------------------------------


def question_fact(question: FactQuestion) -> Fact:
    """The fact that a question asks for: it holds where the answer is the right one."""
    words = f"{question.text.strip()} {question.answer.strip()}"
    return Fact(question.kind, words, question=question.text)


@dataclass(frozen=True)
class QuestionSource:
    """The facts that the questions of a sample ask for."""

    identity: str = "questions/1"

    def facts(self, sample: Sample) -> tuple[Fact, ...]:
        """One of each different question. Raises MeasurementError for a sample without any."""
        return tuple(dict.fromkeys(map(question_fact, own_questions(sample))))


@dataclass(frozen=True)
class VqaChecker:
    """Asks a VQA model the questions of a sample, softly, and control questions with them.

    It can only be asked about given facts, so there is no precision. See `FactChecker`.
    """

    questions: QuestionSettings = field(default_factory=QuestionSettings)
    lists: bool = False

    @property
    def identity(self) -> str:
        """How the model is asked."""
        return f"vqa/1 {self.questions.identity}"

    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """The artifacts, as the VQA model reads them."""

        def query(sample: Sample, _: BoundRole) -> str:
            return self.questions.query(sample)

        if not generations:
            return ()
        return (RequiredFeatures(plan, generations, VQA, query, stops_chain=False),)

    def check(
        self,
        chains: Sequence[Chain],
        generation: int,
        facts: Mapping[str, Sequence[Fact]],
        chain_data: ChainData,
    ) -> list[FactReading | Failure]:
        """How likely the right answers are.

        Raises MeasurementError where a fact is none that a question of its sample asks for.
        """
        readings: list[FactReading | Failure] = []
        for chain, result in zip(
            chains, self.questions.ask(chains, generation, chain_data), strict=True
        ):
            if isinstance(result, Failure):
                readings.append(result)
                continue
            known = _by_question(chain.sample, result.atoms)
            answers = _answers(chain.sample, facts[chain.sample.id], known)
            readings.append(FactReading(answers, controls=result.controls))
        return readings


def _by_question(sample: Sample, atoms: Sequence[float]) -> dict[tuple[str, str], float]:
    questions = own_questions(sample)
    return {(q.kind, q.text): atom for q, atom in zip(questions, atoms, strict=True)}


def _answers(
    sample: Sample, facts: Sequence[Fact], known: Mapping[tuple[str, str], float]
) -> tuple[float, ...]:
    missing = [fact for fact in facts if (fact.kind, fact.question) not in known]
    if missing:
        raise MeasurementError(
            f"sample {sample.id!r} has no question that asks for its fact {str(missing[0])!r}, so "
            'no VQA model can check it: facts = "questions", or with GenEval\'s metadata [data] '
            'questions = "metadata", has one for each'
        )
    return tuple(known[fact.kind, fact.question] for fact in facts)
