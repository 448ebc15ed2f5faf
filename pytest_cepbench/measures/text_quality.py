"""repetition, length: whether the texts of chains stay texts."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Settings of repetition. n: words of the n-grams that are counted."""

    n: int = REPEATED


class TextMeasure(Measure):
    """A statistic of the descriptions of each chain, of which the last is the score.

    A chain that stopped has the worst score.
    """

    def __init__(self, kind: str, name: str, table: TextTable, context: SuiteContext) -> None:
        """Raises SuiteError for a description that the chains do not reach, a length without an
        earlier text, and n below 1.
        """
        super().__init__(kind, name, table, context)
        self.plan = plan = context.plan(name, table.start)
        described = [g for g in range(1, plan.generations + 1) if plan.describes(g)]
        at = len(described) if table.at is None else table.at
        self.generations = tuple(described[:at])
        self.n = table.n if isinstance(table, RepetitionTable) else None
        problem = ""
        if not 1 <= at <= len(described):
            problem = f"at = {at}, and the chains have {len(described)} descriptions"
        elif kind == "length" and plan.start == "image" and at < 2:
            problem = "a length is compared with an earlier text, and there is none before at = 1"
        elif self.n is not None and self.n < 1:
            problem = f"n is at least 1, got {self.n}"
        if problem:
            raise context.error(name, problem)
        self.higher_is_better = self.n is None
        self.label = f"{kind}({at})"
        words = "" if self.n is None else f", n = {self.n}"
        self.identity = f"{kind}/1 of generation {described[at - 1]}, over {self.pool}{words}"

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The chains up to the last description that counts; no encoder."""
        return (RequiredFeatures(self.plan, self.generations, None),)

    def read(self, case: Case, samples: Sequence[Sample], data: ChainData) -> dict[str, Chain]:
        """The chains."""
        data.require_recorded(self.plan.start, self.generations)
        return data.chains(self.plan.start, samples)

    def measure(self, case: Case, data: ChainData) -> Measured:
        """A number for each chain's last description."""
        parts, samples = parts_of(case, data.dataset)
        chains = self.read(case, samples, data)
        rows = {name: self._scores(chain) for name, chain in chains.items()}
        return Measured(
            scores=by_part(parts, {name: row[-1] for name, row in rows.items()}),
            samples=samples,
            outcomes=[outcome_of_chain(chain, self.plan) for chain in chains.values()],
            curve=tuple(np.mean(list(rows.values()), axis=0).tolist()),
            shares=True,
        )

    def show(self, case: Case, sample_id: str, data: ChainData) -> ChainExcerpt:
        """The chain, with the number of each of its descriptions."""
        chain = self.read(case, data.named(sample_id), data)[sample_id]
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


class FailuresTable(MetricTable, frozen=True, kw_only=True):
    """failures: the share of chains that stopped."""


class FailureMeasure(Measure):
    """1 for a sample whose chains stopped, 0 for one whose chains are whole.

    Of a sample with two chains each counts half. What the encoder cannot encode that compares a
    chain's artifacts with its start, where the suite has one, is a failure too.
    """

    parts = "overall"
    higher_is_better = False
    label = "failure rate"
    identity = "failures/2"

    def __init__(self, kind: str, name: str, table: FailuresTable, context: SuiteContext) -> None:
        super().__init__(kind, name, table, context)
        self.plans = context.plans
        self.encoders = context.encoders

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The chains to their ends, and what is compared with their starts."""
        whole = [RequiredFeatures(plan, (plan.generations,), None) for plan in self.plans.values()]
        compared = [
            RequiredFeatures(self.plans[start], (0, *_returns(self.plans[start])), encoder)
            for start, encoder in self.encoders.items()
        ]
        return (*whole, *compared)

    def read(
        self, case: Case, samples: Sequence[Sample], data: ChainData
    ) -> list[dict[str, CaseScores]]:
        """The chains, and what encoders make of them: of each plan the outcomes by sample."""
        by_chain = []
        for start, plan in self.plans.items():
            if (encoder := self.encoders.get(start)) is None:
                chains = data.chains(start, samples)
                by_chain.append({n: outcome_of_chain(c, plan) for n, c in chains.items()})
            else:
                traces = data.traces(start, encoder, _returns(plan), samples)
                by_chain.append({n: outcome_of(t, plan, encoder) for n, t in traces.items()})
        return by_chain

    def measure(self, case: Case, data: ChainData) -> Measured:
        """A share per sample."""
        parts, samples = parts_of(case, data.dataset)
        by_chain = self.read(case, samples, data)
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

    def show(self, case: Case, sample_id: str, data: ChainData) -> ChainExcerpt:
        """The chain that stopped, or the first one."""
        samples = data.named(sample_id)
        chains = [data.chains(start, samples)[sample_id] for start in self.plans]
        stopped = [chain for chain in chains if chain.failure is not None]
        return ChainExcerpt((stopped or chains)[0], {})


def _returns(plan: ChainPlan) -> tuple[int, ...]:
    """The generations at which a chain is back at the modality of its start."""
    return tuple(range(2, plan.generations + 1, 2))
