"""Chains that the baseline's model begins, out of the store, and the model under test carries on."""

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
    """One hop: in which chains, whose, and at which generation."""

    start: Modality
    role: str
    generation: int


@dataclass(frozen=True)
class HybridChains:
    """A case's chains with some of their first hops played by the baseline's model.

    evidence: the candidate's own. plans: of the chains that the case reads, as far as it reads
    them. places: the hops of the roles that differ, in the order in which they are put back.
    absent: by role, who acted there in the baseline, answering from the store alone.
    """

    case: Case
    measure: Measure
    evidence: ChainData
    plans: Mapping[Modality, ChainPlan]
    places: tuple[HopLocation, ...]
    absent: Mapping[str, RoleRunner]

    def hybrid(self, swapped: int, samples: Sequence[Sample]) -> ChainData:
        """The samples' chains with so many of the first hops from the baseline."""
        stand_ins = {
            (start, generation): self.absent[role]
            for start, role, generation in self.places[:swapped]
        }
        return self.evidence.recast(samples, self.plans, stand_ins)

    def chains(self, swapped: int, samples: Sequence[Sample]) -> list[Chain]:
        """The chains of a hybrid, of every start that the case reads.

        Raises NotInStoreError where the store lacks one of the baseline's hops.
        """
        evidence = self.hybrid(swapped, samples)
        return [chain for start in self.plans for chain in evidence.chains(start, samples).values()]

    def in_store(self, samples: Sequence[Sample]) -> list[Sample]:
        """Those of the samples whose chains by the baseline's model are in the store."""
        if self._has(samples):
            return list(samples)
        return [sample for sample in samples if self._has([sample])]

    def _has(self, samples: Sequence[Sample]) -> bool:
        try:
            self.chains(len(self.places), samples)
        except NotInStoreError:
            return False
        return True

    def values(self, samples: Sequence[Sample], *, whole: bool) -> list[float]:
        """The case's value over the samples by every hybrid, from the candidate's own on.

        whole: as the case pools its categories, which is also how scores of whole sets are pooled;
        else the mean over the samples. Raises MeasurementError where a hybrid cannot be measured,
        or only by other means than the candidate (sets of images that are smaller).
        """
        found = [self._measure(swapped, samples) for swapped in range(len(self.places) + 1)]
        if any(one.identity != found[0].identity for one in found):
            msg = (
                "chains that only in part are the baseline's stop at other places, and sets of "
                "other sizes are not compared"
            )
            raise MeasurementError(msg)
        pooled = whole or not self.measure.per_sample
        return [_value(one, pooled=pooled) for one in found]

    def _measure(self, swapped: int, samples: Sequence[Sample]) -> Measured:
        evidence = self.hybrid(swapped, samples)
        present = tuple(c for c in self.case.categories if evidence.dataset.in_category(c))
        return self.measure.measure(replace(self.case, categories=present), evidence)


def relay(
    case: Case, measure: Measure, evidence: ChainData, absent: Mapping[str, RoleRunner]
) -> HybridChains:
    """The relay of a case; fields as in `Relay`."""
    plans = read_plans(case, measure)
    places = tuple(
        HopLocation(start, grower(plan, generation), generation)
        for start, plan in plans.items()
        for generation in range(1, plan.generations + 1)
        if grower(plan, generation) in absent
    )
    return HybridChains(case, measure, evidence, plans, places, absent)


def read_plans(case: Case, measure: Measure) -> dict[Modality, ChainPlan]:
    """The chains that a case's scores depend on, as far as they do: what lies behind is not played."""
    plans: dict[Modality, ChainPlan] = {}
    for one in measure.readings(case):
        known = plans.get(one.plan.start)
        last = one.generations[-1] if known is None else max(one.generations[-1], known.generations)
        plans[one.plan.start] = replace(one.plan, generations=last)
    return plans


def first_difference(one: Chain, other: Chain) -> int | None:
    """The first generation whose artifacts differ, or that one of two chains of a sample lacks."""
    for generation, (mine, theirs) in enumerate(zip_longest(one.links, other.links)):
        if mine is None or theirs is None or mine.digest != theirs.digest:
            return generation
    return None


def _value(measured: Measured, *, pooled: bool) -> float:
    if pooled:
        return mean_of_scores(measured.scores)
    # A sample in several categories has the same score in each.
    each = {name: score for part in measured.scores.values() for name, score in part.items()}
    return mean_of_scores({"": each})
