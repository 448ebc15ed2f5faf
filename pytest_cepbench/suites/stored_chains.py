"""Chains by a recorded model, such as the baseline's, as far as stores have them.

No model is loaded or asked for them: neither the recorded one nor those that are held fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pytest_cepbench.chains import ChainModels, ChainPlan, Modality, RoleRunner
from pytest_cepbench.chains.steps import recall
from pytest_cepbench.errors import NotInStoreError
from pytest_cepbench.models.protocols import BoundRole, Model
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.measures import ChainExcerpt, Measure
from pytest_cepbench.suites.measures.base import plans_of
from pytest_cepbench.suites.roles import GROWERS

FloatArray = npt.NDArray[np.float64]

_CONFIDENCE = 0.95

_FEWEST_GENERATIONS = 2  # of a curve


@dataclass(frozen=True)
class StoredChains:
    """The chains of a case by a recorded model, of the samples that stores have.

    data: reads them as far as the case does; None where there are none.
    chains: sample id -> start -> the chain as far as it is stored, without similarities; of samples
        whose chains are stored as far as the case reads them.
    """

    case: Case
    measure: Measure
    data: ChainData | None
    chains: Mapping[str, Mapping[Modality, ChainExcerpt]]

    def scored(self, sample_id: str) -> ChainExcerpt | None:
        """A sample's chain with its similarities; None where stores do not have all of it."""
        if self.data is None or sample_id not in self.chains:
            return None
        try:
            return self.measure.show(self.case, sample_id, self.data)
        except NotInStoreError:
            return None

    def excerpt(self, sample_id: str, start: Modality) -> ChainExcerpt | None:
        """A sample's chain from a start; None where stores do not have it.

        Without similarities where the encoder's vectors are not stored.
        """
        known = self.chains.get(sample_id, {}).get(start)
        scored = self.scored(sample_id)
        if known is None or scored is None or scored.chain.links[0].kind != start:
            return known
        return replace(scored, chain=known.chain)


@dataclass(frozen=True)
class SimilarityCurve:
    """Mean similarity of chains to their starts, by generation.

    generations: (g,) that were compared, rising, from 1 on.
    mean: (g,) over the samples.
    low, high: (g,) ends of the 95 % confidence interval of each mean, by Student's t over
        independent units; equal to the mean where there is one unit.
    samples: how many.
    """

    generations: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    samples: int


def stored_chains(run: ChainRun, case: Case, step: str, sample_ids: Sequence[str]) -> StoredChains:
    """The samples' chains by the model that a baseline remembers, without loading any model.

    step: the model, by `remember`.
    Raises BaselineError for a step that cannot be read, DatasetError and StoreError as they come.
    """
    recorded = {bound.role: bound for bound in recall(step)}
    store = run.chain_data.store

    def runner(role: str) -> RoleRunner:
        bound = recorded.get(role) or run.runner(role).bound  # type: ignore[call-overload]
        return RoleRunner(replace(bound, load=_refuse(bound)), store)

    describer, generator = (
        runner(role) if role in run.assignments.roles else None for role in GROWERS
    )
    measure = run.measures[case.key.metric]
    plans = _plans_read(measure, case)
    models = ChainModels(describer, generator, store)
    dataset = run.chain_data.dataset
    wanted = set(sample_ids)
    samples = [sample for sample in dataset.samples if sample.id in wanted]
    whole = ChainData(dataset, run.suite.plans, models, runner)
    chains: dict[str, dict[Modality, ChainExcerpt]] = {}
    for start, plan in plans.items():
        for pending in whole.look_ahead(start, samples):
            chain = pending.chain
            if chain.failure is not None or len(chain.links) > plan.generations:
                excerpt = ChainExcerpt(chain, {}, chain.failure, chain.failed_at)
                chains.setdefault(chain.sample.id, {})[start] = excerpt
    known = {name: own for name, own in chains.items() if len(own) == len(plans)}
    complete = [sample for sample in samples if sample.id in known]
    data = whole.recast(complete, plans, {}) if complete else None
    return StoredChains(case, measure, data, known)


def _refuse(bound: BoundRole) -> Callable[[], Model]:
    def load() -> Model:
        msg = f"a step of {bound.spec} is not in the store, and chains are only read here"
        raise NotInStoreError(msg)

    return load


def _plans_read(measure: Measure, case: Case) -> dict[Modality, ChainPlan]:
    """The plans of the chains that a case reads, by start, as far as it reads them."""
    required = measure.required_features(case)
    last: dict[Modality, int] = {}
    for features in required:
        start = features.plan.start
        last[start] = max(last.get(start, 0), features.generations[-1])
    return {plan.start: replace(plan, generations=last[plan.start]) for plan in plans_of(required)}


def similarity_curve(
    show: Callable[[str], ChainExcerpt | None], units: Mapping[str, str]
) -> SimilarityCurve | None:
    """The curve of samples; None where a sample is not shown, or with other generations.

    show: gives the chain of a sample id with its similarities.
    units: sample id -> the independent unit that it belongs to.
    """
    rows: list[list[float]] = []
    generations: tuple[int, ...] = ()
    for name in units:
        excerpt = show(name)
        marks = {} if excerpt is None else excerpt.marks
        generations = generations or tuple(sorted(marks))
        if len(generations) < _FEWEST_GENERATIONS or tuple(sorted(marks)) != generations:
            return None
        rows.append([marks[generation] for generation in generations])
    if not rows:
        return None
    mean, margin = _mean_and_margin(np.array(rows), list(units.values()))
    return SimilarityCurve(
        generations,
        tuple(mean.tolist()),
        tuple((mean - margin).tolist()),
        tuple((mean + margin).tolist()),
        len(rows),
    )


def _mean_and_margin(values: FloatArray, units: Iterable[str]) -> tuple[FloatArray, FloatArray]:
    """Mean of each column, and half of its confidence interval's width.

    values: (n, g). units: (n,) rows of one unit are not independent: their deviations add up.
    """
    from scipy.special import stdtrit

    mean = values.mean(axis=0)
    _, places = np.unique(list(units), return_inverse=True)
    count = int(places.max()) + 1
    if count == 1:
        return mean, np.zeros_like(mean)
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, places, values - mean)
    error = np.sqrt(count / (count - 1) * (sums**2).sum(axis=0)) / len(values)
    return mean, float(stdtrit(count - 1, (1 + _CONFIDENCE) / 2)) * error
