"""Facts that questions ask for, checked by a VQA model in texts and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, ChainPlan
from pytest_cepbench.datasets.questions import FactQuestion
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.measures.base import RequiredFeatures
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.fact_checks import FactReading
from pytest_cepbench.measures.vqa_questions import VQA, QuestionSettings, own_questions
from pytest_cepbench.metrics.facts import Fact
from pytest_cepbench.models.binding import BoundRole


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
