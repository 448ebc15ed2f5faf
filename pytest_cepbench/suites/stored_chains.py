"""Chains by a recorded model, such as the baseline's: shown as stored, and put back hop by hop."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_cepbench.chains import Chain, ChainModels, Modality, RoleRunner
from pytest_cepbench.chains.steps import recall, remember
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import BaselineError, CepError, MeasurementError, NotInStoreError
from pytest_cepbench.gate.measurement import Scores, mean_of_scores
from pytest_cepbench.measures.base import ChainExcerpt, Measure, plans_read, readers_of
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Model
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.definition import GROWERS

_LOOK = 2048  # chains that are looked up together: a query for each generation of so many


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
        absent = wanted - whole.keys()
        missing = [sample for sample in self._data.dataset.samples if sample.id in absent]
        for low in range(0, len(missing), _LOOK):
            for pending in self._data.look_ahead(start, missing[low : low + _LOOK]):
                found[pending.chain.sample.id] = pending.chain
                if not pending.missing:  # of others the run itself may make more
                    whole[pending.chain.sample.id] = pending.chain
            self._data.store.artifact_cache.clear()
        return found


def stored_chains(run: ChainRun, step: str) -> StoredChains:
    """The chains by the model that a baseline remembers, read without loading any model.

    step: the model, by `remember`.
    Raises BaselineError for a step that cannot be read.
    """

    def runner(role: str) -> RoleRunner:
        bound = recorded.get(role) or run.runner(role).bound

        def refuse() -> Model:
            raise NotInStoreError(
                f"a step of {bound.spec} is not in the store, and chains are only read here"
            )

        return RoleRunner(replace(bound, load=refuse), run.data.store)

    def open_chains() -> StoredChains:
        describer, generator = (
            runner(role) if role in run.assignments.roles else None for role in GROWERS
        )
        models = ChainModels(describer, generator, run.data.store)
        data = ChainData(run.data.dataset, run.suite.plans, models, runner)
        data.know_starts(run.data)
        return StoredChains(run.measures, data)

    recorded: dict[str, BoundRole] = {bound.role: bound for bound in recall(step)}
    return run.data.cached("stored chains", step, open_chains)


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


_NOTHING = 5e-7
"""What is smaller is no difference: scores are kept with six decimals."""

_MOST_OTHERS = 3


@dataclass(frozen=True)
class Hop:
    """One hop of a role that differs from the baseline's.

    start: of its chains.
    role: whose step it is.
    generation: from 1 on.
    cost: what was lost there, in the metric's own unit; above 0 for a loss, whichever direction of
    the metric is better.
    """

    start: Modality
    role: str
    generation: int
    cost: float


@dataclass(frozen=True)
class Attribution:
    """The hops at which a case lost its score.

    said: in words, or why nothing can be said.
    samples: how many were looked at.
    hops: of the roles that differ, chain by chain; their costs add up to what was lost.
    """

    said: str
    samples: int = 0
    hops: tuple[Hop, ...] = ()


def attribute(run: ChainRun, case: Case, step: str, sample_ids: Sequence[str]) -> Attribution:
    """Say at which hops a case lost its score, by chains that begin as the baseline's.

    Hybrid k has the baseline's first k hops of the roles that differ and goes on by the
    candidate: hybrid 0 is the candidate's own chain, the last one the baseline's. Hop k costs what
    hybrid k scores better than hybrid k - 1. The baseline's hops come from the store, its model is
    never loaded; the candidate's are computed where they are not stored.

    step: the baseline's model, by `remember`; empty where it has none.
    sample_ids: of the case; all when empty, which is what distances between sets need. Over given
    samples each counts once, in however many categories it is.
    What cannot be found out is said, not raised: the verdict stands without it. Raises ValueError
    for an id that is not the case's.
    """
    data = run.data
    own = {s.id: s for category in case.categories for s in data.dataset.in_category(category)}
    foreign = [name for name in sample_ids if name not in own]
    if foreign:
        raise ValueError(
            f"{case.key} has no sample {foreign[0]!r}: ids of its own samples are expected"
        )
    samples = [own[name] for name in sorted(set(sample_ids) or own)]
    try:
        baseline_models = _baseline_models(data, step)
        if isinstance(baseline_models, str):
            return Attribution(baseline_models)
        return _attribute(run, case, step, baseline_models, samples, whole=not sample_ids)
    except (BaselineError, MeasurementError, NotInStoreError) as error:
        return Attribution(f"Where the score was lost cannot be said: {error}.")
    except CepError as error:
        return Attribution(f"could not be followed through the chain: {error}")


def _baseline_models(chain_data: ChainData, step: str) -> dict[str, RoleRunner] | str:
    """The baseline's models unlike the candidate's, by role; or why none can be put back."""
    if chain_data.replay is not None:
        return "The chains were made elsewhere: there is no model to play them on from a hop."
    if not step:
        return (
            "The baseline does not say whose steps it was measured with: it is of chains made "
            "elsewhere, or of an older version; a new one, accepted with --snapshot-update, does."
        )
    remembered = {bound.role: bound for bound in recall(step)}
    readers = [role for role in remembered if role not in GROWERS]
    if readers:
        return (
            f"The {' and '.join(readers)} under test only reads: the chains are the baseline's "
            "own, and what was lost was lost in reading them."
        )
    differing: dict[str, RoleRunner] = {
        role: RoleRunner(bound, chain_data.store)
        for role, bound in remembered.items()
        if remember(chain_data.runner(role).bound) != remember(bound)
    }
    return (
        differing
        or f"The {' and '.join(remembered)} is the baseline's own: there is no model to exchange."
    )


def _attribute(
    run: ChainRun,
    case: Case,
    step: str,
    baseline_models: Mapping[str, RoleRunner],
    samples: Sequence[Sample],
    *,
    whole: bool,
) -> Attribution:
    """As `attribute`, by the baseline's models that differ.

    whole: whether categories are pooled as the case pools them, which is also how scores of whole
    sets are pooled; else the value is the mean over the samples.
    Raises NotInStoreError, and MeasurementError where a hybrid cannot be measured, or only by other
    means than the candidate (sets of images that are smaller).
    """
    measure = run.measures[case.key.metric]
    plans = plans_read(measure.required_features(case))
    places = [
        (start, plan.role(generation), generation)
        for start, plan in plans.items()
        for generation in range(1, plan.generations + 1)
        if plan.role(generation) in baseline_models
    ]

    def hybrid(swapped: int, own: Sequence[Sample]) -> ChainData:
        first = {(start, at): baseline_models[role] for start, role, at in places[:swapped]}
        return run.data.recast(own, plans, first)

    whole_chains = stored_chains(run, step).known(case, [sample.id for sample in samples])
    known = [sample for sample in samples if sample.id in whole_chains]
    if not known:
        return Attribution(
            "The baseline's chains are not in this run's store, so where the score was lost cannot "
            "be said: use the store of the run that measured the baseline (--cep-store), or "
            "measure its model once with this one."
        )
    measured = []
    for swapped in range(len(places) + 1):
        data = hybrid(swapped, known)
        present = tuple(c for c in case.categories if data.dataset.in_category(c))
        measured.append(measure.measure(replace(case, categories=present), data))
    if any(own.identity != measured[0].identity for own in measured):
        raise MeasurementError(
            "chains that only in part are the baseline's stop at other hops, and sets of "
            "other sizes are not compared"
        )
    each: list[Scores] = [own.scores for own in measured]
    if measure.per_sample and not whole:  # a sample in several categories counts once
        each = [{"": {s: x for part in own.values() for s, x in part.items()}} for own in each]
    values = list(map(mean_of_scores, each))
    sign = 1.0 if measure.higher_is_better else -1.0
    hops = tuple(
        Hop(*place, cost=tidy(sign * (after - before)))
        for place, before, after in zip(places, values, values[1:], strict=False)
    )
    drop = tidy(sign * (values[-1] - values[0]))
    said = _describe_hops(hops, drop, len(known), both=len(plans) > 1)
    if len(baseline_models) > 1:
        costs = {role: sum(h.cost for h in hops if h.role == role) for role in baseline_models}
        said += f" By role: {', '.join(f'{role} {cost:.4f}' for role, cost in costs.items())}."
    if left_out := len(samples) - len(known):
        said += f" Left out: {left_out} whose chains by the baseline are not in the store."
    return Attribution(said, len(known), hops)


def tidy(cost: float) -> float:
    """Without the last bits of sums over equal scores, and without -0.0."""
    return 0.0 if abs(cost) < _NOTHING else cost


def _describe_hops(hops: Sequence[Hop], drop: float, samples: int, *, both: bool) -> str:
    """Which hop cost most, and which others had a part."""
    over = f"over {samples} sample{'s' if samples > 1 else ''}"
    if drop <= 0:
        gained = f", the value is {-drop:.4f} better than the baseline's" if drop < 0 else ""
        return f"Nothing was lost {over}{gained}."
    worst = max(hops, key=lambda hop: hop.cost)
    others = sorted((h for h in hops if h.cost and h is not worst), key=lambda h: -abs(h.cost))
    where = {
        hop: f"generation {hop.generation}" + (f" of the {hop.start}-first chains" if both else "")
        for hop in hops
    }
    sentence = (
        f"Lost {drop:.4f} {over}: {worst.cost:.4f} ({worst.cost / drop:.0%}) by the {worst.role} "
        f"at {where[worst]}"
    )
    for hop in others[:_MOST_OTHERS]:
        sentence += f", {hop.cost:.4f} at {where[hop]}"
    return f"{sentence}{', less elsewhere' if len(others) > _MOST_OTHERS else ''}."
