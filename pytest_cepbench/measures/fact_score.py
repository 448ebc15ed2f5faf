"""facts: whether what is true of a sample is still told and still shown along its chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import Chain, ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, unknown_name
from pytest_cepbench.measures.base import (
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    RequiredFeatures,
    SuiteContext,
    by_category,
    by_part,
    everyone,
    outcome_of_chain,
    population,
    readers_of,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.fact_checks import FactChecker, FactReading, FactSource
from pytest_cepbench.measures.fact_registry import (
    PICTURE_CHECKERS,
    SOURCES,
    TEXT_CHECKERS,
    FactsTable,
    misfits,
)
from pytest_cepbench.measures.sanity_checks import NO_FLOOR
from pytest_cepbench.measures.vqa_questions import QuestionSettings, control_notes
from pytest_cepbench.metrics.fact_losses import FactSummary, Role, summarize_facts
from pytest_cepbench.metrics.facts import Fact, FactAnswers, chance_f1, check_kinds, fact_f1
from pytest_cepbench.metrics.gc import mean_of_categories

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
    """

    facts: tuple[Fact, ...]
    answers: FactAnswers
    claims: tuple[frozenset[Fact], ...] | None
    outcome: CaseScores
    controls: Mapping[Modality, Sequence[float]]

    @property
    def f1(self) -> npt.NDArray[np.float64]:
        """The score of each artifact; NaN where its checker failed."""
        return fact_f1(self.answers)

    @property
    def score(self) -> float | None:
        """The mean over the chain's artifacts; None where a checker failed at one."""
        mean = float(self.f1.mean())
        return None if isnan(mean) else mean


@dataclass(frozen=True, kw_only=True)
class FactsMeasure(Measure):
    """The mean macro-F1 of a sample's facts over the artifacts of its chain.

    Texts and pictures count alike. Where a checker fails at an artifact the sample has no score.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    source: FactSource
    texts: FactChecker
    pictures: FactChecker
    kinds: tuple[str, ...]

    @property
    def precision(self) -> bool:
        """Whether what is claimed beyond the facts counts."""
        return self.texts.lists and self.pictures.lists

    @property
    def label(self) -> str:
        """F1 under the metric's own name, or recall where no precision can be had."""
        return f"{self.name} {'F1' if self.precision else 'recall'}"

    @property
    def identity(self) -> str:
        """Version, source, checkers, and what counts."""
        kinds = ", ".join(self.kinds) or "all kinds"
        last = self.generations[-1]
        return (
            f"{VERSION} of {self.source.identity}, texts by {self.texts.identity}, pictures by "
            f"{self.pictures.identity}, {kinds}, to generation {last}, over {self.pool}"
        )

    @property
    def _questions(self) -> QuestionSettings | None:
        """How a VQA model is asked; None where no checker asks one."""
        asked = (self._checker(generation).questions for generation in self.generations)
        return next((own for own in asked if own is not None), None)

    def _checker(self, generation: int) -> FactChecker:
        return self.texts if self.plan.describes(generation) else self.pictures

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The artifacts of the chains, as their checkers read them, and starts that are asked."""
        asked = self._questions
        return tuple(
            features
            for describes, checker in ((True, self.texts), (False, self.pictures))
            for features in checker.required_features(
                self.plan, tuple(g for g in self.generations if self.plan.describes(g) == describes)
            )
        ) + (() if asked is None else asked.required_starts(self.plan))

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """Check the facts of the samples."""
        self._checked(chain_data, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One score per chain, and what became of the facts.

        Raises MeasurementError for a sample without facts, and where control questions show that a
        VQA model cannot be believed.
        """
        parts = by_category(case, chain_data)
        samples = everyone(parts)
        checked = self._checked(chain_data, samples)
        controls = self._control_notes(checked.values(), chain_data)
        scored = [checked[s.id].f1 for s in samples if checked[s.id].score is not None]
        curve = np.array(scored).mean(axis=0).tolist() if scored else []
        floor = self._floor(case, parts, checked)
        facts = [[s.id, *map(str, self._facts(s))] for s in population(case, chain_data)]
        return Measured(
            scores=by_part(parts, {name: own.score or 0.0 for name, own in checked.items()}),
            samples=samples,
            outcomes=[checked[sample.id].outcome for sample in samples],
            curve=tuple(curve),
            notes=(*controls, *self._floor_note(floor)),
            identity={"facts": digest_json(facts)[:16]},
            floor=floor,
            facts=self._summary(samples, checked),
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain with the F1 of its artifacts, and the facts that it lost first."""
        samples = chain_data.named(sample_id)
        checked = self._checked(chain_data, samples)[sample_id]
        chain = chain_data.chains(self.plan.start, samples)[sample_id]
        marks = {
            generation: float(f1)
            for generation, f1 in zip(self.generations, checked.f1, strict=True)
            if not isnan(f1)
        }
        outcome = checked.outcome
        return ChainExcerpt(chain, marks, outcome.failure, chain.failed_at, self._remark(checked))

    def _remark(self, checked: CheckedChain) -> str:
        """The facts that are not right at the first generation that loses any."""
        for generation, column in zip(self.generations, checked.answers.answers.T, strict=True):
            lost = [f for f, answer in zip(checked.facts, column, strict=True) if answer < 0.5]
            if lost:
                named = ", ".join(f"{fact.kind} {str(fact)!r}" for fact in lost[:_NAMED])
                more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
                role = "description" if self.plan.describes(generation) else "drawing"
                return f"generation {generation}, a {role}, lacks {named}{more}"
        return ""

    def _facts(self, sample: Sample) -> tuple[Fact, ...]:
        """The facts of a sample that count. Raises MeasurementError where there is none."""
        facts = self.source.facts(sample)
        counted = tuple(f for f in facts if not self.kinds or f.kind in self.kinds)
        if not counted:
            which = f" of the kinds {', '.join(self.kinds)}" if facts else ""
            raise MeasurementError(f"{self.name}: sample {sample.id!r} has no facts{which}")
        return counted

    def _checked(self, chain_data: ChainData, samples: Sequence[Sample]) -> dict[str, CheckedChain]:
        chain_data.require_recorded(self.plan.start, self.generations)

        return chain_data.per_chain(
            self, self.plan.start, samples, lambda chains: self._check_chains(chains, chain_data)
        )

    def _check_chains(
        self, chains: Sequence[Chain], chain_data: ChainData
    ) -> dict[str, CheckedChain]:
        facts = {chain.sample.id: self._facts(chain.sample) for chain in chains}
        if self._questions is not None and self._questions.controls:
            self._questions.ask(chains, 0, chain_data)  # stored, with what the chains are read for
        readings: dict[str, list[FactReading | Failure | None]] = {name: [] for name in facts}
        for generation in self.generations:
            able = [chain for chain in chains if chain.has(generation)]
            results = self._checker(generation).check(able, generation, facts, chain_data)
            by_sample = {c.sample.id: own for c, own in zip(able, results, strict=True)}
            for name, own_readings in readings.items():
                own_readings.append(by_sample.get(name))
        return {
            chain.sample.id: self._sum_up(chain, facts[chain.sample.id], readings[chain.sample.id])
            for chain in chains
        }

    def _sum_up(
        self,
        chain: Chain,
        facts: tuple[Fact, ...],
        readings: Sequence[FactReading | Failure | None],
    ) -> CheckedChain:
        """The answers on a chain: 0 where it stopped, none where a checker failed."""
        columns, claims = [], []
        controls: dict[Modality, list[float]] = {}
        outcome = outcome_of_chain(chain, self.plan)
        for generation, reading in zip(self.generations, readings, strict=True):
            claimed: frozenset[Fact] = frozenset()
            if isinstance(reading, FactReading):
                columns.append([np.nan if a is None else float(a) for a in reading.answers])
                claimed = reading.claimed or claimed
                if reading.controls:
                    controls.setdefault(self.plan.modality(generation), []).extend(reading.controls)
            else:
                columns.append([0.0 if reading is None else np.nan] * len(facts))
            failure = reading if isinstance(reading, Failure) else None
            if isinstance(reading, FactReading) and set(reading.answers) == {None}:
                failure = Failure("bad-answer", "the checker gave no answer on any fact")
            if failure is not None:
                outcome = CaseScores(chain.sample.id, failure, self._reader(generation))
            claims.append(frozenset(f for f in claimed if not self.kinds or f.kind in self.kinds))
        listed = tuple(claims) if self.precision else None
        surplus = None if listed is None else _surplus(facts, listed)
        invented = None if listed is None else _invented(facts, listed)
        kinds = tuple(fact.kind for fact in facts)
        answers = FactAnswers(kinds, np.array(columns).T, surplus, invented)
        return CheckedChain(facts, answers, listed, outcome, controls)

    def _reader(self, generation: int) -> str:
        """The role that checks a generation; the checker itself where no model does."""
        required = self._checker(generation).required_features(self.plan, (generation,))
        return next(iter(readers_of(required)), "checker of facts")

    def _control_notes(
        self, checked: Iterable[CheckedChain], chain_data: ChainData
    ) -> tuple[str, ...]:
        """What control questions tell of the VQA model, where one is asked."""
        if self._questions is None:
            return ()
        later: dict[Modality, list[float]] = {}
        for own in checked:
            for modality, probabilities in own.controls.items():
                later.setdefault(modality, []).extend(probabilities)
        return control_notes(self.name, self._questions, self.plan, chain_data, later)

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

    def _floor_note(self, floor: float | None) -> tuple[str, ...]:
        """Why there is no floor, where there is none."""
        if floor is not None:
            return ()
        return (NO_FLOOR if self.precision else _NOT_LISTED,)

    def _summary(
        self, samples: Sequence[Sample], checked: Mapping[str, CheckedChain]
    ) -> FactSummary:
        roles: list[Role] = [
            "describer" if self.plan.describes(g) else "generator" for g in self.generations
        ]
        answers = [checked[sample.id].answers for sample in samples]
        units = [sample.unit for sample in samples]
        return summarize_facts(answers, units, self.generations, roles)


def _surplus(
    facts: Sequence[Fact], claims: Sequence[frozenset[Fact]]
) -> dict[str, npt.NDArray[np.float64]]:
    """Of each kind, how many facts each artifact claims that the sample does not have."""
    true = frozenset(facts)
    return _count_kinds([claimed - true for claimed in claims])


def _invented(
    facts: Sequence[Fact], claims: Sequence[frozenset[Fact]]
) -> dict[str, npt.NDArray[np.float64]]:
    """Of these, how many the artifact before did not claim; before the first is the start."""
    true = frozenset(facts)
    before = [true, *claims]
    return _count_kinds(
        [claimed - true - earlier for claimed, earlier in zip(claims, before, strict=False)]
    )


def _count_kinds(added: Sequence[frozenset[Fact]]) -> dict[str, npt.NDArray[np.float64]]:
    """(n_artifacts,) how many facts of each kind that is there."""
    kinds = {fact.kind for claimed in added for fact in claimed}
    return {
        kind: np.array([float(sum(f.kind == kind for f in claimed)) for claimed in added])
        for kind in kinds
    }


def make_facts(kind: str, name: str, table: FactsTable, context: SuiteContext) -> FactsMeasure:
    """The measure of a table; there is one kind.

    Raises SuiteError for an unknown source, checker or kind of fact, for those that do not go
    together or with the data, and for an iteration that the chains do not reach.
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
    else:
        modalities = tuple(dict.fromkeys(plan.modality(g) for g in range(1, last + 1)))
        problem = next(misfits(table, modalities, context), "")
    if problem:
        raise context.error(name, problem)
    return FactsMeasure(
        **table.shared(name),
        plan=plan,
        generations=tuple(range(1, last + 1)),
        source=SOURCES[table.facts](table),
        texts=texts,
        pictures=pictures,
        kinds=tuple(dict.fromkeys(table.kinds or ())),
    )
