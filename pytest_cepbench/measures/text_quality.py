"""repetition, length: whether the texts of chains stay texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.chains import Chain, ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.measures.base import (
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    by_part,
    outcome_of,
    outcome_of_chain,
    parts_of,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.diversity import REPEATED, kept_length, repeated_share


class TextTable(MetricTable, frozen=True, kw_only=True):
    """length: of the texts that a chain's describer writes.

    at: number of the description that counts, 1 for the first; the last one when left out.
    start: which chains, where the suite plays both.
    """

    at: int | None = None
    start: Modality | None = None


class RepetitionTable(TextTable, frozen=True, kw_only=True):
    """Settings of repetition.

    n: words of the n-grams that are counted.
    """

    n: int = REPEATED


@dataclass(frozen=True, kw_only=True)
class TextMeasure(Measure):
    """A statistic of the descriptions of each chain.

    A chain that stopped has the worst score.
    generations: of the descriptions that are read, the last of which is the score.
    n: words of the n-grams of repetition; None for length.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    n: int | None

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The chains up to the last description that counts; no encoder."""
        return (RequiredFeatures(self.plan, self.generations, None),)

    def read(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, Chain]:
        """The chains."""
        chain_data.require_recorded(self.plan.start, self.generations)
        return chain_data.chains(self.plan.start, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """A number for each chain's last description."""
        parts, samples = parts_of(case, chain_data)
        chains = self.read(case, samples, chain_data)
        rows = {name: self._scores(chain) for name, chain in chains.items()}
        return Measured(
            scores=by_part(parts, {name: row[-1] for name, row in rows.items()}),
            samples=samples,
            outcomes=[outcome_of_chain(chain, self.plan) for chain in chains.values()],
            curve=tuple(np.mean(list(rows.values()), axis=0).tolist()),
            shares=True,
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain, with the number of each of its descriptions."""
        chain = self.read(case, chain_data.named(sample_id), chain_data)[sample_id]
        return ChainExcerpt(chain, dict(zip(self.generations, self._scores(chain), strict=True)))

    def _scores(self, chain: Chain) -> list[float]:
        """Of each description; the worst one from the step on that stopped the chain."""
        first = next((link.text for link in chain.links if link.text is not None), "")
        texts = [
            chain.links[generation].text if chain.has(generation) else None
            for generation in self.generations
        ]
        if self.n is None:
            return [0.0 if text is None else kept_length(first, text) for text in texts]
        return [1.0 if text is None else repeated_share(text, self.n) for text in texts]


def make_texts(kind: str, name: str, table: TextTable, context: SuiteContext) -> TextMeasure:
    """The measure of a table.

    Raises SuiteError for a description that the chains do not reach, a length without an earlier
    text, and n below 1.
    """
    plan = context.plan(name, table.start)
    generations = [g for g in range(1, plan.generations + 1) if plan.describes(g)]
    at = len(generations) if table.at is None else table.at
    if not 1 <= at <= len(generations):
        raise context.error(name, f"at = {at}, and the chains have {len(generations)} descriptions")
    if kind == "length" and plan.start == "image" and at < 2:
        raise context.error(
            name, "a length is compared with an earlier text, and there is none before at = 1"
        )
    n = table.n if isinstance(table, RepetitionTable) else None
    if n is not None and n < 1:
        raise context.error(name, f"n is at least 1, got {n}")
    shared = table.shared(name)
    words = "" if n is None else f", n = {n}"
    return TextMeasure(
        **shared,
        label=f"{kind}({at})",
        identity=f"{kind}/1 of generation {generations[at - 1]}, over {shared['pool']}{words}",
        plan=plan,
        generations=tuple(generations[:at]),
        n=n,
        higher_is_better=n is None,
    )


class FailuresTable(MetricTable, frozen=True, kw_only=True):
    """failures: the share of chains that stopped."""


@dataclass(frozen=True, kw_only=True)
class FailureMeasure(Measure):
    """1 for a sample whose chains stopped, 0 for one whose chains are whole.

    Of a sample with two chains each counts half. encoders: by start, the role that compares a
    chain's artifacts with it, where the suite has one: what it cannot encode is a failure too.
    """

    plans: tuple[ChainPlan, ...]
    encoders: Mapping[Modality, str]
    higher_is_better: bool = False

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The chains to their ends, and what is compared with their starts."""
        whole = [RequiredFeatures(plan, (plan.generations,), None) for plan in self.plans]
        plans = {plan.start: plan for plan in self.plans}
        compared = [
            RequiredFeatures(plans[start], (0, *_returns(plans[start])), encoder)
            for start, encoder in self.encoders.items()
        ]
        return (*whole, *compared)

    def read(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> list[dict[str, CaseScores]]:
        """The chains, and what encoders make of them: of each plan the outcomes by sample."""
        by_chain = []
        for plan in self.plans:
            if (encoder := self.encoders.get(plan.start)) is None:
                chains = chain_data.chains(plan.start, samples)
                by_chain.append({n: outcome_of_chain(c, plan) for n, c in chains.items()})
            else:
                traces = chain_data.traces(plan.start, encoder, _returns(plan), samples)
                by_chain.append({n: outcome_of(t, plan, encoder) for n, t in traces.items()})
        return by_chain

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """A share per sample."""
        parts, samples = parts_of(case, chain_data)
        by_chain = self.read(case, samples, chain_data)
        shares = {
            sample.id: sum(outcomes[sample.id].failure is not None for outcomes in by_chain)
            / len(by_chain)
            for sample in samples
        }
        return Measured(
            scores=by_part(parts, shares),
            samples=samples,
            outcomes=[outcome for outcomes in by_chain for outcome in outcomes.values()],
            shares=True,
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain that stopped, or the first one."""
        chains = [
            chain_data.chains(plan.start, chain_data.named(sample_id))[sample_id]
            for plan in self.plans
        ]
        stopped = [chain for chain in chains if chain.failure is not None]
        return ChainExcerpt((stopped or chains)[0], {})


def _returns(plan: ChainPlan) -> tuple[int, ...]:
    """The generations at which a chain is back at the modality of its start."""
    return tuple(range(2, plan.generations + 1, 2))


def make_failures(
    name: str, table: FailuresTable, context: SuiteContext, encoders: Mapping[Modality, str]
) -> FailureMeasure:
    """The measure of a table; encoders as in `FailureMeasure`."""
    return FailureMeasure(
        **table.shared(name, parts="overall"),
        label="failure rate",
        identity="failures/2",
        plans=tuple(context.plans.values()),
        encoders=encoders,
    )
