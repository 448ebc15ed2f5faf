"""facts: whether what is true of a sample is still told and still shown along its chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import Chain, ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, unknown_name
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
    population,
    readers_of,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import NO_FLOOR
from pytest_cepbench.measures.fact_checks import (
    SOURCES,
    DetectorChecker,
    FactChecker,
    FactReading,
    SceneChecker,
    VqaChecker,
)
from pytest_cepbench.measures.geneval_score import PictureReader
from pytest_cepbench.measures.soft_tifa import (
    CONTROLS,
    LEAST_CONTROL,
    PROMPT,
    QuestionSettings,
    control_notes,
    own_questions,
)
from pytest_cepbench.metrics.fact_losses import summarize_facts
from pytest_cepbench.metrics.facts import Fact, FactAnswers, chance_f1, check_kinds, fact_f1
from pytest_cepbench.metrics.gc import mean_of_categories
from pytest_cepbench.metrics.geneval_prompts import GENEVAL


class FactsTable(MetricTable, frozen=True, kw_only=True):
    """facts: F1 of a sample's atomic facts over the texts and pictures of its chain.

    facts: where they come from: "scene", the generated scene of the embedded world; "questions",
    what `[data] questions` asks; "geneval", the clauses of GenEval's metadata.
    texts, pictures: what checks them there: "scene", the world's grammar and rules of sight; "vqa",
    the VQA model; of pictures also "detector", by GenEval's rules.
    kinds: of facts that count; all that the source has when left out.
    at: the last iteration that counts; the chain's when left out.
    start: which chains, where the suite plays both.
    prompt, controls, least_control: how the VQA model is asked; see `SoftTifaTable`.
    threshold, counting_threshold, colors, color_encoder: of the detector; see `GenevalTable`.
    """

    facts: str = "scene"
    texts: str = "scene"
    pictures: str = "scene"
    kinds: list[str] | None = None
    at: int | None = None
    start: Modality | None = None
    prompt: str = PROMPT
    controls: int = CONTROLS
    least_control: float = LEAST_CONTROL
    threshold: float | None = None
    counting_threshold: float | None = None
    colors: Literal["clip", "detector"] = "clip"
    color_encoder: str = ENCODER


def _vqa_checker(table: FactsTable) -> FactChecker:
    questions = QuestionSettings(table.prompt, table.controls, table.least_control)
    return VqaChecker(identity=f"vqa/1 {questions.identity}", questions=questions)


def _detector_checker(table: FactsTable) -> FactChecker:
    given = {"threshold": table.threshold, "counting_threshold": table.counting_threshold}
    thresholds: Any = {name: value for name, value in given.items() if value is not None}
    settings = replace(GENEVAL, **thresholds)
    reader = PictureReader("facts", settings, table.colors, table.color_encoder)
    return DetectorChecker(identity=f"detector/1 {reader.identity}", reader=reader)


TEXT_CHECKERS: Mapping[str, Callable[[FactsTable], FactChecker]] = {
    "scene": lambda _: SceneChecker(),
    "vqa": _vqa_checker,
}
"""Name under `texts` -> what makes the checker; raises ValueError for a setting out of range."""

PICTURE_CHECKERS = {**TEXT_CHECKERS, "detector": _detector_checker}
"""The same under `pictures`."""

VERSION = "facts/1"
"""Of the score; raised when equal answers give another number."""

_NOT_LISTED = (
    "no floor by chance: the checkers can be asked about a sample's own facts alone, not about "
    "what else its texts and pictures claim"
)

_NAMED = 4  # lost facts of a sample, in its remark


@dataclass(frozen=True)
class CheckedChain:
    """The facts of one sample, and what was found of them in its chain.

    facts: those that count.
    answers: on them, at each generation that is checked.
    claims: what each artifact claims; empty for one that is not there, None where no checker lists.
    outcome: what stopped the chain, or which checker failed, if anything did.
    controls: by modality, how surely control questions about its artifacts were answered rightly.
    f1: the score of each artifact; NaN where its checker failed.
    """

    facts: tuple[Fact, ...]
    answers: FactAnswers
    claims: tuple[frozenset[Fact], ...] | None
    outcome: CaseScores
    controls: Mapping[Modality, Sequence[float]]

    f1: npt.NDArray[np.float64]

    @property
    def score(self) -> float | None:
        """The mean over the chain's artifacts; None where a checker failed at one."""
        mean = float(self.f1.mean())
        return None if isnan(mean) else mean


@dataclass(frozen=True, kw_only=True)
class FactsMeasure(Measure):
    """The mean macro-F1 of a sample's facts over the artifacts of its chain.

    Texts and pictures count alike. Where a checker fails at an artifact the sample has no score.
    precision: whether what is claimed beyond the facts counts.
    questions: how a VQA model is asked; None where no checker asks one.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    facts_of: Callable[[Sample], tuple[Fact, ...]]
    texts: FactChecker
    pictures: FactChecker
    kinds: tuple[str, ...]
    precision: bool
    questions: QuestionSettings | None

    def check_data(self, samples: Sequence[Sample]) -> None:
        """Raise MeasurementError where the first sample has none, or none has one of a kind."""
        absent = set(self.kinds)
        for sample in samples:
            absent -= {fact.kind for fact in self.facts_of(sample)}
            if self.questions is not None:
                own_questions(sample)
            if not absent:
                return
        kinds = ", ".join(kind for kind in self.kinds if kind in absent)
        raise MeasurementError(f"no sample has a fact of the kinds {kinds}")

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The artifacts of the chains, as their checkers read them, and starts that are asked."""
        asked = () if self.questions is None else self.questions.required_starts(self.plan)
        texts = tuple(g for g in self.generations if self.plan.describes(g))
        pictures = tuple(g for g in self.generations if not self.plan.describes(g))
        return (
            *self.texts.required_features(self.plan, texts),
            *self.pictures.required_features(self.plan, pictures),
            *asked,
        )

    def read(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, CheckedChain]:
        """The facts of the samples, checked."""
        chain_data.require_recorded(self.plan.start, self.generations)
        return chain_data.per_chain(
            self, self.plan.start, samples, lambda chains: self._check_chains(chains, chain_data)
        )

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One score per chain, and what became of the facts.

        Raises MeasurementError for a sample without facts, and where control questions show that a
        VQA model cannot be believed.
        """
        parts, samples = parts_of(case, chain_data)
        checked = self.read(case, samples, chain_data)
        notes: tuple[str, ...] = ()
        if self.questions is not None:
            later: dict[Modality, list[float]] = {}
            for own in checked.values():
                for modality, probabilities in own.controls.items():
                    later.setdefault(modality, []).extend(probabilities)
            notes = control_notes(self.name, self.questions, self.plan, chain_data, later)
        scored = [checked[s.id].f1 for s in samples if checked[s.id].score is not None]
        floor = self._floor(case, parts, checked)
        if floor is None:
            notes += (NO_FLOOR if self.precision else _NOT_LISTED,)
        facts = [[s.id, *map(str, self._facts(s))] for s in population(case, chain_data)]
        describes = [self.plan.describes(generation) for generation in self.generations]
        return Measured(
            scores=by_part(parts, {name: own.score or 0.0 for name, own in checked.items()}),
            samples=samples,
            outcomes=[checked[sample.id].outcome for sample in samples],
            curve=tuple(np.array(scored).mean(axis=0).tolist()) if scored else (),
            notes=notes,
            identity={"facts": digest_json(facts)[:16]},
            floor=floor,
            facts=summarize_facts(
                [checked[sample.id].answers for sample in samples],
                [sample.unit for sample in samples],
                self.generations,
                ["describer" if own else "generator" for own in describes],
            ),
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain with the F1 of its artifacts, and the facts that it lost first."""
        samples = chain_data.named(sample_id)
        checked = self.read(case, samples, chain_data)[sample_id]
        chain = chain_data.chains(self.plan.start, samples)[sample_id]
        marks = {
            generation: float(f1)
            for generation, f1 in zip(self.generations, checked.f1, strict=True)
            if not isnan(f1)
        }
        remark = ""
        for generation, column in zip(self.generations, checked.answers.answers.T, strict=True):
            lost = [f for f, answer in zip(checked.facts, column, strict=True) if answer < 0.5]
            if lost:  # at the first generation that loses any
                named = ", ".join(f"{fact.kind} {str(fact)!r}" for fact in lost[:_NAMED])
                more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
                role = "description" if self.plan.describes(generation) else "drawing"
                remark = f"generation {generation}, a {role}, lacks {named}{more}"
                break
        return ChainExcerpt(chain, marks, checked.outcome.failure, chain.failed_at, remark)

    def _facts(self, sample: Sample) -> tuple[Fact, ...]:
        """The facts of a sample that count. Raises MeasurementError where there is none."""
        facts = self.facts_of(sample)
        counted = tuple(f for f in facts if not self.kinds or f.kind in self.kinds)
        if not counted:
            which = f" of the kinds {', '.join(self.kinds)}" if facts else ""
            raise MeasurementError(f"{self.name}: sample {sample.id!r} has no facts{which}")
        return counted

    def _check_chains(
        self, chains: Sequence[Chain], chain_data: ChainData
    ) -> dict[str, CheckedChain]:
        """The answers on each chain: 0 where it stopped, none where a checker failed."""
        facts = {chain.sample.id: self._facts(chain.sample) for chain in chains}
        if self.questions is not None and self.questions.controls:
            self.questions.ask(chains, 0, chain_data)  # stored, with what the chains are read for
        read: list[tuple[int, str, dict[str, FactReading | Failure]]] = []
        for generation in self.generations:
            checker = self.texts if self.plan.describes(generation) else self.pictures
            required = checker.required_features(self.plan, (generation,))
            reader = next(iter(readers_of(required)), "checker of facts")
            able = [chain for chain in chains if chain.has(generation)]
            results = checker.check(able, generation, facts, chain_data)
            by_sample = {c.sample.id: own for c, own in zip(able, results, strict=True)}
            read.append((generation, reader, by_sample))
        checked = {}
        for chain in chains:
            name, own_facts = chain.sample.id, facts[chain.sample.id]
            columns, claims = [], []
            controls: dict[Modality, list[float]] = {}
            outcome = outcome_of_chain(chain, self.plan)
            for generation, reader, by_sample in read:
                reading, claimed = by_sample.get(name), frozenset[Fact]()
                failure = reading if isinstance(reading, Failure) else None
                if isinstance(reading, FactReading):
                    columns.append([np.nan if a is None else float(a) for a in reading.answers])
                    claimed = reading.claimed or claimed
                    if reading.controls:
                        modality = self.plan.modality(generation)
                        controls.setdefault(modality, []).extend(reading.controls)
                    if set(reading.answers) == {None}:
                        failure = Failure("bad-answer", "the checker gave no answer on any fact")
                else:
                    columns.append([0.0 if reading is None else np.nan] * len(own_facts))
                if failure is not None:
                    outcome = CaseScores(name, failure, reader)
                if self.kinds:
                    claimed = frozenset(f for f in claimed if f.kind in self.kinds)
                claims.append(claimed)
            listed = surplus = None
            if self.precision:
                true = frozenset(own_facts)
                listed = tuple(claims)
                surplus = _count_kinds([claimed - true for claimed in claims])
            kinds = tuple(fact.kind for fact in own_facts)
            answers = FactAnswers(kinds, np.array(columns).T, surplus)
            f1 = fact_f1(answers)
            checked[name] = CheckedChain(own_facts, answers, listed, outcome, controls, f1)
        return checked

    def _floor(
        self,
        case: Case,
        parts: Mapping[str, Sequence[Sample]],
        checked: Mapping[str, CheckedChain],
    ) -> float | None:
        """What chance gives; None where claims are not listed, or all samples are alike."""
        if not self.precision:
            return None
        rows = [(name, sample) for name, part in parts.items() for sample in part]
        own = [checked[sample.id] for _, sample in rows]
        pooled = len(parts) < len(case.categories)
        homes = [sample.categories[0] if pooled else name for name, sample in rows]
        chance = chance_f1([c.facts for c in own], [c.claims or () for c in own], homes)
        if chance is None:
            return None
        names = np.array([name for name, _ in rows])
        return mean_of_categories({name: chance[names == name] for name in parts})


def _count_kinds(added: Sequence[frozenset[Fact]]) -> dict[str, npt.NDArray[np.float64]]:
    """(n_artifacts,) how many facts of each kind that is there."""
    kinds = {fact.kind for claimed in added for fact in claimed}
    return {
        kind: np.array([float(sum(f.kind == kind for f in claimed)) for claimed in added])
        for kind in kinds
    }


def make_facts(kind: str, name: str, table: FactsTable, context: SuiteContext) -> FactsMeasure:
    """The measure of a table; there is one kind.

    Raises SuiteError for an unknown source, checker or kind of fact, for a checker that cannot
    check the facts, and for an iteration that the chains do not reach.
    """
    plan = context.plan(name, table.start)
    for what, given, known in (
        ("source of facts", table.facts, SOURCES),
        ("checker of texts", table.texts, TEXT_CHECKERS),
        ("checker of pictures", table.pictures, PICTURE_CHECKERS),
    ):
        if given not in known:
            raise context.error(name, unknown_name(what, given, known))
    try:
        check_kinds(table.kinds or ())
        texts = TEXT_CHECKERS[table.texts](table)
        pictures = PICTURE_CHECKERS[table.pictures](table)
    except ValueError as error:
        raise context.error(name, error) from error
    last = plan.generations if table.at is None else 2 * table.at
    problem = ""
    if table.kinds == []:
        problem = "kinds = [] leaves no facts"
    elif not 1 <= last <= plan.generations:
        problem = f"at = {table.at}, and the chains have {plan.generations // 2} iterations"
    version, facts_of, able = SOURCES[table.facts]
    for key, of, used in (("texts", "text", table.texts), ("pictures", "image", table.pictures)):
        made = any(plan.modality(g) == of for g in range(1, min(last, 2) + 1))
        if made and used not in able and not problem:
            fitting = " or ".join(f'"{other}"' for other in able)
            problem = f'{key} = "{used}" cannot check facts = "{table.facts}": give {fitting}'
    if problem:
        raise context.error(name, problem)
    precision = texts.lists and pictures.lists
    kinds = tuple(dict.fromkeys(table.kinds or ()))
    checkers = (texts if plan.describes(g) else pictures for g in range(1, last + 1))
    shared = table.shared(name)
    return FactsMeasure(
        **shared,
        label=f"{name} {'F1' if precision else 'recall'}",
        identity=(
            f"{VERSION} of {version}, texts by {texts.identity}, pictures by "
            f"{pictures.identity}, {', '.join(kinds) or 'all kinds'}, to generation {last}, over "
            f"{shared['pool']}"
        ),
        plan=plan,
        generations=tuple(range(1, last + 1)),
        facts_of=facts_of,
        texts=texts,
        pictures=pictures,
        kinds=kinds,
        precision=precision,
        questions=next((own.questions for own in checkers if own.questions is not None), None),
    )
