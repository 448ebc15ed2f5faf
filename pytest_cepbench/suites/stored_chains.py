"""Chains by a recorded model, such as the baseline's, as far as stores have them.

No model is loaded or asked for them: neither the recorded one nor those that are held fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pytest_cepbench.chains import Chain, ChainModels, Modality, RoleRunner
from pytest_cepbench.chains.steps import recall, remember
from pytest_cepbench.errors import NotInStoreError
from pytest_cepbench.measures import ChainExcerpt, Measure
from pytest_cepbench.measures.base import plans_read, readers_of
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Model
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.definition import GROWERS

_CONFIDENCE = 0.95

_LOOK = 2048  # chains that are looked up together: a query for each generation of so many

_FEWEST_GENERATIONS = 2  # of a curve


class StoredChains:
    """The chains of a suite's samples by a recorded model, as far as stores have them.

    What was read is kept, but for the vectors.
    """

    def __init__(self, measures: Mapping[str, Measure], data: ChainData) -> None:
        """data: of models that refuse to load; see `stored_chains`."""
        self._measures = measures
        self._data = data
        self._scored: dict[Hashable, dict[str, ChainExcerpt]] = {}
        self._whole: dict[Modality, dict[str, Chain]] = {}

    def known(self, case: Case, sample_ids: Iterable[str]) -> list[str]:
        """The samples whose chains are stored as far as the case reads them, or to their end.

        Raises DatasetError and StoreError as they come.
        """
        plans = plans_read(self._measures[case.key.metric].required_features(case))
        ids = list(sample_ids)
        for start, plan in plans.items():
            chains = self.chains(start, ids)
            ids = [
                name
                for name in ids
                if chains[name].failure is not None or len(chains[name].links) > plan.generations
            ]
        return ids

    def scored(self, case: Case, sample_ids: Iterable[str]) -> dict[str, ChainExcerpt]:
        """The chains of known samples with their similarities; none where a vector is missing.

        Raises as `known`.
        """
        measure = self._measures[case.key.metric]
        scored = self._scored.setdefault((type(measure), measure.required_features(case)), {})
        ids = list(sample_ids)
        missing = set(ids) - scored.keys()
        samples = [sample for sample in self._data.dataset.samples if sample.id in missing]
        if samples:
            data = self._data.recast(samples, plans_read(measure.required_features(case)), {})
            try:
                measure.read(case, samples, data)
                excerpts = {s.id: measure.show(case, s.id, data) for s in samples}
            except NotInStoreError:
                return {}
            scored.update((name, shown) for name, shown in excerpts.items() if shown is not None)
        return {name: scored[name] for name in ids if name in scored}

    def excerpt(self, case: Case, sample_id: str, start: Modality) -> ChainExcerpt | None:
        """A sample's chain from a start; None where stores do not have it.

        As far as it is stored, also beyond what the case reads; without similarities where the
        encoder's vectors are not stored. Raises as `known`.
        """
        if not self.known(case, [sample_id]):
            return None
        scored = self.scored(case, [sample_id]).get(sample_id)
        chain = self.chains(start, [sample_id])[sample_id]
        if scored is None or scored.chain.links[0].kind != start:
            return ChainExcerpt(chain, {}, chain.failure, chain.failed_at)
        return replace(scored, chain=chain)

    def chains(self, start: Modality, sample_ids: Iterable[str]) -> dict[str, Chain]:
        """Chains from a start, by sample id, as far as they are stored. Raises as `known`."""
        wanted = set(sample_ids)
        whole = self._whole.setdefault(start, {})
        found = {name: whole[name] for name in wanted & whole.keys()}
        missing = [s for s in self._data.dataset.samples if s.id in wanted - whole.keys()]
        for low in range(0, len(missing), _LOOK):
            for pending in self._data.look_ahead(start, missing[low : low + _LOOK]):
                found[pending.chain.sample.id] = pending.chain
                if not pending.missing:  # of others the run itself may make more
                    whole[pending.chain.sample.id] = pending.chain
            self._data.store.artifact_cache.clear()
        return found


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


def stored_chains(run: ChainRun, step: str) -> StoredChains:
    """The chains by the model that a baseline remembers, read without loading any model.

    step: the model, by `remember`.
    Raises BaselineError for a step that cannot be read.
    """
    return run.chain_data.cached("stored chains", step, lambda: _open(run, step))


def is_model_of(run: ChainRun, case: Case, step: str) -> bool:
    """Whether a recorded model is the one whose chains the run measured, all of them stored.

    Raises BaselineError as `stored_chains`.
    """
    roles = run.assignments.roles
    recorded = {own.role: remember(own) for own in recall(step)}
    same = all(r in roles and remember(run.runner(r).bound) == recorded[r] for r in recorded)
    readers = readers_of(run.measures[case.key.metric].required_features(case))
    asked = [role for role in roles if role in (*GROWERS, *readers)]
    return same and not any(run.runner(role).tally.passing for role in asked)


def _open(run: ChainRun, step: str) -> StoredChains:
    recorded: dict[str, BoundRole] = {bound.role: bound for bound in recall(step)}
    store = run.chain_data.store

    def runner(role: str) -> RoleRunner:
        bound = recorded.get(role) or run.runner(role).bound
        return RoleRunner(replace(bound, load=_refuse(bound)), store)

    describer, generator = (
        runner(role) if role in run.assignments.roles else None for role in GROWERS
    )
    models = ChainModels(describer, generator, store)
    data = ChainData(run.chain_data.dataset, run.suite.plans, models, runner)
    data.know_starts(run.chain_data)
    return StoredChains(run.measures, data)


def _refuse(bound: BoundRole) -> Callable[[], Model]:
    def load() -> Model:
        raise NotInStoreError(
            f"a step of {bound.spec} is not in the store, and chains are only read here"
        )

    return load


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
    values = np.array(rows)
    mean, margin = values.mean(axis=0), np.zeros(len(generations))
    _, places = np.unique(list(units.values()), return_inverse=True)
    count = int(places.max()) + 1
    if count > 1:  # rows of one unit are not independent: their deviations add up
        sums = np.zeros((count, len(generations)))
        np.add.at(sums, places, values - mean)
        error = np.sqrt(count / (count - 1) * (sums**2).sum(axis=0)) / len(values)
        from scipy.special import stdtrit  # takes a while to import

        margin = stdtrit(count - 1, (1 + _CONFIDENCE) / 2) * error
    return SimilarityCurve(
        generations,
        tuple(mean.tolist()),
        tuple((mean - margin).tolist()),
        tuple((mean + margin).tolist()),
        len(rows),
    )
