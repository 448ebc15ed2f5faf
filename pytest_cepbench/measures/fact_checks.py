"""Where the facts of samples come from, and what checks them in texts and in pictures.

A suite names them under `[metrics.facts]`: the embedded world's scenes, read by its grammar and by
its rules of sight; questions, answered by a VQA model; GenEval's clauses, checked by a detector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_json
from pytest_cepbench.chains import Chain, ChainPlan, load_link
from pytest_cepbench.chains.chain import naming_damage
from pytest_cepbench.datasets.geneval import prompt_questions
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import (
    WORLD_VERSION,
    Scene,
    caption,
    known_scene,
    parse_caption,
    parse_image,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.questions import SCENE_FACTS, scene_facts
from pytest_cepbench.errors import DamagedInputsError, MeasurementError, StoreError
from pytest_cepbench.measures.base import RequiredFeatures
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.geneval_score import PictureReader
from pytest_cepbench.measures.soft_tifa import QuestionSettings, own_questions
from pytest_cepbench.metrics.facts import Fact
from pytest_cepbench.metrics.geneval import judge
from pytest_cepbench.metrics.geneval_prompts import parse_prompt, prompt_atoms
from pytest_cepbench.store import Store, StoredResult


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


@dataclass(frozen=True, kw_only=True)
class FactChecker(ABC):
    """What checks facts in one modality's artifacts.

    identity: version and settings that decide the answers, in one line.
    lists: whether readings say what else is claimed, so that there is precision.
    questions: how it asks a VQA model, which control questions have to show to be one that sees;
        None where it asks none.
    """

    identity: str
    lists: bool = False
    questions: QuestionSettings | None = None

    @abstractmethod
    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """What it reads of chains at generations of its modality; see `RequiredFeatures`."""

    @abstractmethod
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


def facts_of_scene(sample: Sample) -> tuple[Fact, ...]:
    """The facts of the generated scene that a sample was drawn from.

    Raises MeasurementError for a sample without one.
    """
    try:
        return scene_facts(sample_scene(sample))
    except (KeyError, TypeError, ValueError) as error:
        raise MeasurementError(
            f"sample {sample.id!r} has no facts: its metadata holds no generated scene, as the "
            "loaders shapes and shapes-tasks give one; leave [metrics.facts] out, or name "
            "another source of facts"
        ) from error


def facts_of_questions(sample: Sample) -> tuple[Fact, ...]:
    """A fact of each different question: it holds where the answer is the right one.

    Raises MeasurementError for a sample without questions.
    """
    return tuple(
        dict.fromkeys(
            Fact(q.kind, f"{q.text.strip()} {q.answer.strip()}", question=q.text)
            for q in own_questions(sample)
        )
    )


def facts_of_clauses(sample: Sample) -> tuple[Fact, ...]:
    """The facts that the clauses of a GenEval prompt name, one for each demand.

    Raises MeasurementError for metadata of another form. See `prompt_atoms`.
    """
    try:
        prompt = parse_prompt(sample.metadata)
    except ValueError as error:
        raise MeasurementError(
            f"sample {sample.id!r} has no facts: its metadata is none of GenEval's form: {error}"
        ) from error
    return tuple(
        Fact(atom.kind, atom.words, question=question.text)
        for atom, question in zip(prompt_atoms(prompt), prompt_questions(prompt), strict=True)
    )


SOURCES: Mapping[str, tuple[str, Callable[[Sample], tuple[Fact, ...]], tuple[str, ...]]] = {
    "scene": (SCENE_FACTS, facts_of_scene, ("scene",)),
    "questions": ("questions/1", facts_of_questions, ("vqa",)),
    "geneval": ("geneval-facts/1", facts_of_clauses, ("vqa", "detector")),
}
"""Name under `facts` -> version of the facts, what gives those of a sample (at least one, no two
equal), and the names of the checkers that can check them."""


@dataclass(frozen=True, kw_only=True)
class SceneChecker(FactChecker):
    """Reads texts by the grammar of the world and pictures by its rules; it knows every fact."""

    identity: str = f"{WORLD_VERSION} {SCENE_FACTS}"
    lists: bool = True

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
        """The scene of each artifact, fact by fact: 1 for what it claims, else 0."""
        with naming_damage(chains, generation):
            scenes = _scenes(chains, generation, chain_data.store)
            damaged = [place for place, scene in enumerate(scenes) if scene is None]
            if damaged:
                raise DamagedInputsError(damaged)
        readings: list[FactReading | Failure] = []
        for chain, scene in zip(chains, scenes, strict=True):
            assert scene is not None
            claimed = _claims(scene)
            answers = tuple(float(fact in claimed) for fact in facts[chain.sample.id])
            readings.append(FactReading(answers, claimed))
        return readings


def _scenes(chains: Sequence[Chain], generation: int, store: Store) -> list[Scene | None]:
    """Of the chains' artifacts; None for a damaged picture.

    What is seen in a picture is stored as the scene's caption, under the picture's digest and the
    world's version: a rerun would decode and parse every picture again, half of its time.
    """
    links = [chain.links[generation] for chain in chains]
    keys = {
        link.digest: digest_json({"scene": WORLD_VERSION, "image": link.digest})
        for link in links
        if link.text is None
    }
    captions = store.get(keys.values())
    scenes: list[Scene | None] = []
    entries: list[StoredResult] = []
    for chain, link in zip(chains, links, strict=True):
        text = link.text if link.text is not None else captions.get(keys[link.digest])
        if isinstance(text, str):
            scenes.append(parse_caption(text))
            continue
        # A model of the world may have parsed it in this process: then no file is read.
        scene = known_scene(link.digest)
        if scene is None:
            picture = load_link(chain, generation, store)
            scene = None if picture is None else parse_image(ImageArtifact.from_pil(picture))
        if scene is not None:
            entries.append(StoredResult(keys[link.digest], caption(scene)))
        scenes.append(scene)
    with suppress(StoreError):  # all is seen: a full disk is no error of the case any more
        store.put(entries)
    return scenes


@lru_cache(4096)
def _claims(scene: Scene) -> frozenset[Fact]:
    return frozenset(scene_facts(scene))


@dataclass(frozen=True, kw_only=True)
class VqaChecker(FactChecker):
    """Asks a VQA model the questions of a sample, softly, and control questions with them.

    It can only be asked about given facts, so there is no precision.
    """

    questions: QuestionSettings

    def required_features(
        self, plan: ChainPlan, generations: tuple[int, ...]
    ) -> tuple[RequiredFeatures, ...]:
        """The artifacts, as the VQA model reads them."""
        return (self.questions.required(plan, generations),) if generations else ()

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
            sample, questions = chain.sample, own_questions(chain.sample)
            known = dict(zip(((q.kind, q.text) for q in questions), result.atoms, strict=True))
            asked = facts[sample.id]
            missing = [fact for fact in asked if (fact.kind, fact.question) not in known]
            if missing:
                raise MeasurementError(
                    f"sample {sample.id!r} has no question that asks for its fact "
                    f'{str(missing[0])!r}, so no VQA model can check it: facts = "questions", or '
                    'with GenEval\'s metadata [data] questions = "metadata", has one for each'
                )
            answers = tuple(known[fact.kind, fact.question] for fact in asked)
            readings.append(FactReading(answers, controls=result.controls))
        return readings


@dataclass(frozen=True, kw_only=True)
class DetectorChecker(FactChecker):
    """Judges each demand of a prompt by itself, by GenEval's rules on what the detector finds."""

    reader: PictureReader

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
        readings: list[FactReading | Failure] = []
        images = self.reader.read(chains, generation, chain_data)
        for chain, own in zip(chains, images, strict=True):
            if isinstance(own, Failure):
                readings.append(own)
                continue
            if isinstance(own.colors, Failure):
                detail = f"{self.reader.color_encoder}: {own.colors.detail}"
                readings.append(Failure(own.colors.kind, detail))
                continue
            atoms = {(atom.kind, atom.words): atom for atom in prompt_atoms(own.prompt)}
            answers = []
            for fact in facts[chain.sample.id]:
                atom = atoms.get((fact.kind, fact.words))
                if atom is None:
                    raise MeasurementError(
                        f"sample {chain.sample.id!r}: the detector checks the facts of GenEval's "
                        f'metadata alone, and {str(fact)!r} is none: give facts = "geneval"'
                    )
                try:
                    verdict = judge(atom.demand, own.objects, own.colors, self.reader.settings)
                except ValueError as error:  # a color that nobody told
                    raise MeasurementError(
                        f"{error}: give colors = 'clip' and a color_encoder"
                    ) from error
                answers.append(float(verdict.correct))
            readings.append(FactReading(tuple(answers)))
        return readings
