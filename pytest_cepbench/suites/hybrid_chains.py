"""Chains that begin with stored results of the baseline's model, continued by the model under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

from pytest_cepbench.chains import Chain, ChainPlan, Modality, RoleRunner
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, NotInStoreError
from pytest_cepbench.gate.measurement import mean_of_scores
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures import Measure, Measured
from pytest_cepbench.suites.measures.base import grower


class HopLocation(NamedTuple):
    """One hop.

    start: of its chains.
    role: whose step it is.
    generation: from 1 on.
    """

    start: Modality
    role: str
    generation: int


@dataclass(frozen=True)
class HybridChains:
    """A case's chains with some of their first hops from the baseline's model.

    chain_data: the candidate's own chains.
    plans: of the chains that the case reads, as far as it reads them.
    hops: those of the roles that differ, in the order in which they are put back.
    baseline_models: the baseline's models by role; their results come from the store alone.
    """

    case: Case
    measure: Measure
    chain_data: ChainData
    plans: Mapping[Modality, ChainPlan]
    hops: tuple[HopLocation, ...]
    baseline_models: Mapping[str, RoleRunner]

    def hybrid(self, swapped: int, samples: Sequence[Sample]) -> ChainData:
        """The samples' chains with so many of the first hops from the baseline."""
        stand_ins = {
            (start, generation): self.baseline_models[role]
            for start, role, generation in self.hops[:swapped]
        }
        return self.chain_data.recast(samples, self.plans, stand_ins)

    def chains(self, swapped: int, samples: Sequence[Sample]) -> list[Chain]:
        """The chains of a hybrid, of every start that the case reads.

        Raises NotInStoreError where the store lacks one of the baseline's hops.
        """
        chain_data = self.hybrid(swapped, samples)
        return [
            chain for start in self.plans for chain in chain_data.chains(start, samples).values()
        ]

    def in_store(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples whose chains by the baseline's model are in the store."""
        if self._has(samples):
            return list(samples)
        return [sample for sample in samples if self._has([sample])]

    def _has(self, samples: Sequence[Sample]) -> bool:
        try:
            self.chains(len(self.hops), samples)
        except NotInStoreError:
            return False
        return True

    def values(self, samples: Sequence[Sample], *, whole: bool) -> list[float]:
        """The case's value over the samples by every hybrid, from the candidate's own on.

        whole: as the case pools its categories, which is also how scores of whole sets are pooled;
        else the mean over the samples.
        Raises MeasurementError where a hybrid cannot be measured, or only by other means than the
        candidate (sets of images that are smaller).
        """
        measured = [self._measure(swapped, samples) for swapped in range(len(self.hops) + 1)]
        if any(hybrid.identity != measured[0].identity for hybrid in measured):
            msg = (
                "chains that only in part are the baseline's stop at other hops, and sets of "
                "other sizes are not compared"
            )
            raise MeasurementError(msg)
        pooled = whole or not self.measure.per_sample
        return [_value(hybrid, pooled=pooled) for hybrid in measured]

    def _measure(self, swapped: int, samples: Sequence[Sample]) -> Measured:
        chain_data = self.hybrid(swapped, samples)
        present = tuple(c for c in self.case.categories if chain_data.dataset.in_category(c))
        return self.measure.measure(replace(self.case, categories=present), chain_data)


def make_hybrids(
    case: Case, measure: Measure, chain_data: ChainData, baseline_models: Mapping[str, RoleRunner]
) -> HybridChains:
    """The hybrids of a case; parameters as the fields of `HybridChains`."""
    plans = read_plans(case, measure)
    hops = tuple(
        HopLocation(start, grower(plan, generation), generation)
        for start, plan in plans.items()
        for generation in range(1, plan.generations + 1)
        if grower(plan, generation) in baseline_models
    )
    return HybridChains(case, measure, chain_data, plans, hops, baseline_models)


def read_plans(case: Case, measure: Measure) -> dict[Modality, ChainPlan]:
    """The chains that a case's scores depend on, each only as far as they do."""
    plans: dict[Modality, ChainPlan] = {}
    for required in measure.required_features(case):
        known = plans.get(required.plan.start)
        last = max(required.generations[-1], 0 if known is None else known.generations)
        plans[required.plan.start] = replace(required.plan, generations=last)
    return plans


def first_difference(chain: Chain, other: Chain) -> int | None:
    """The first generation whose artifacts differ, or that one of two chains of a sample lacks."""
    for generation, (mine, theirs) in enumerate(zip_longest(chain.links, other.links)):
        if mine is None or theirs is None or mine.digest != theirs.digest:
            return generation
    return None


def _value(measured: Measured, *, pooled: bool) -> float:
    if pooled:
        return mean_of_scores(measured.scores)
    # A sample in several categories has the same score in each.
    each = {name: score for part in measured.scores.values() for name, score in part.items()}
    return mean_of_scores({"": each})
