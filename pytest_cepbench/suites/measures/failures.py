"""failures: the share of chains that stopped before their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.base import (
    CaseScores,
    ChainExcerpt,
    Measured,
    MetricTable,
    Parts,
    Pool,
    RequiredFeatures,
    SuiteContext,
    by_category,
    everyone,
    outcome_of,
    outcome_of_chain,
)


class FailuresTable(MetricTable, frozen=True, kw_only=True):
    """failures: the share of chains that stopped."""


@dataclass(frozen=True)
class FailureMeasure:
    """1 for a sample whose chains stopped, 0 for one whose chains are whole; see `Measure`.

    Of a sample with two chains each counts half. encoders: by start, the role that compares a
    chain's artifacts with it, where the suite has one: what it cannot encode is a failure too.
    """

    name: str
    plans: tuple[ChainPlan, ...]
    encoders: Mapping[Modality, str]
    pool: Pool
    parts: Parts
    higher_is_better: bool = False
    label: str = "failure rate"
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    span: float | None = 1.0

    @property
    def identity(self) -> str:
        """The definition."""
        return "failures/2"

    def required_features(self, _: Case | None) -> tuple[RequiredFeatures, ...]:
        """The chains to their ends, and what is compared with their starts."""
        whole = [RequiredFeatures(plan, (plan.generations,), None) for plan in self.plans]
        plans = {plan.start: plan for plan in self.plans}
        compared = [
            RequiredFeatures(plans[start], (0, *_returns(plans[start])), encoder)
            for start, encoder in self.encoders.items()
        ]
        return (*whole, *compared)

    def read(self, _: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The chains, and what encoders make of them."""
        for plan in self.plans:
            self._outcomes(plan, samples, chain_data)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """A share per sample."""
        parts = by_category(case, chain_data)
        samples = everyone(parts)
        by_chain = [self._outcomes(plan, samples, chain_data) for plan in self.plans]
        shares = {
            sample.id: sum(outcomes[sample.id].failure is not None for outcomes in by_chain)
            / len(by_chain)
            for sample in samples
        }
        return Measured(
            scores={
                name: {sample.id: shares[sample.id] for sample in part}
                for name, part in parts.items()
            },
            samples=samples,
            outcomes=[outcome for outcomes in by_chain for outcome in outcomes.values()],
            shares=True,
        )

    def show(self, _: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain that stopped, or the first one."""
        chains = [
            chain_data.chains(plan.start, chain_data.named(sample_id))[sample_id]
            for plan in self.plans
        ]
        stopped = [chain for chain in chains if chain.failure is not None]
        return ChainExcerpt((stopped or chains)[0], {})

    def _outcomes(
        self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, CaseScores]:
        encoder = self.encoders.get(plan.start)
        if encoder is None:
            chains = chain_data.chains(plan.start, samples)
            return {name: outcome_of_chain(chain, plan) for name, chain in chains.items()}
        traces = chain_data.traces(plan.start, encoder, _returns(plan), samples)
        return {name: outcome_of(trace, plan, encoder) for name, trace in traces.items()}


def _returns(plan: ChainPlan) -> tuple[int, ...]:
    """The generations at which a chain is back at the modality of its start."""
    return tuple(range(2, plan.generations + 1, 2))


def make_failures(
    name: str, table: FailuresTable, context: SuiteContext, encoders: Mapping[Modality, str]
) -> FailureMeasure:
    """The measure of a table; encoders as in `FailureMeasure`."""
    return FailureMeasure(
        name=name,
        plans=tuple(context.plans.values()),
        encoders=encoders,
        pool=table.pool or "categories",
        parts=table.parts or "overall",
    )
