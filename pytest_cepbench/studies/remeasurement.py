"""A chosen checkpoint measured again, on samples or under a seed that had no part in the choice.

The best of several checkpoints is, among other things, the one that was lucky with the samples and
seeds it was measured on. As a baseline such a score is too high, and equal checkpoints seem to fall
behind it. What is measured again is compared with later checkpoints on the same fresh samples and
seeds: the suite says which they are from then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import CepError, SpecError
from pytest_cepbench.gate import CaseKey, Measurement, record_of
from pytest_cepbench.gate.baseline import averaged, scores_digest
from pytest_cepbench.studies.calibration import Announce
from pytest_cepbench.suites import (
    Assignments,
    ModelPool,
    PreparedSuite,
    RoleChoices,
    Suite,
    load_data,
    load_prepared_suite,
    prepare_suite,
)
from pytest_cepbench.suites.chain_run import refuse_answers, require_chains
from pytest_cepbench.suites.definition import GROWERS, SuiteNumber, amended
from pytest_cepbench.suites.model_options import check_data_names
from pytest_cepbench.suites.model_pool import describe_role

_SEEDS = 1_000_000
"""How many seeds a fresh one can be."""

_FURTHER_SEED = re.compile(r" seed ([1-9][0-9]*)")

_FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "chain": ("chain",),
    "data": ("samples", "clauses", "facts"),
}
"""Fields of an identity that differ because of the table in which the suite is amended."""


@dataclass(frozen=True)
class AcceptedCheckpoint:
    """A checkpoint that is to be measured again.

    suite: its file.
    choices: the model that was chosen, and those of the other roles.
    records: the results of every case of the suite.
    digest: of the results.
    data: data set name -> path or URL.
    samples: most of each category, as in the run.
    seeds: how often it is measured, each time under another seed; the means are kept.
    anchors: records that the accepted baselines are held to, measured under the conditions of the
    results.
    """

    suite: Path
    choices: RoleChoices
    records: Mapping[CaseKey, Measurement]
    digest: str
    data: Mapping[str, DataPlace] = field(default_factory=dict)
    samples: int | None = None
    seeds: int = 1
    anchors: Mapping[CaseKey, Measurement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.choices.replay is not None:
            raise SpecError(
                f"{self.choices.replay!r} brings chains that were made elsewhere: nothing can be "
                "measured again"
            )


@dataclass(frozen=True)
class PreparedRemeasurement:
    """A choice that can be measured again.

    before: the suite as it is.
    setting: what changes in it.
    conditions: what is fresh, in words.
    chosen: the suite as it is from now on, with the chosen model under test.
    anchors: the same with each model that anchors are of, and the cases of those.
    """

    choice: AcceptedCheckpoint
    before: Suite
    setting: SuiteNumber
    conditions: str
    chosen: PreparedSuite
    anchors: tuple[tuple[PreparedSuite, frozenset[CaseKey]], ...]


@dataclass(frozen=True)
class Remeasurement:
    """The new records of the chosen checkpoint, and of the anchors of its cases."""

    ready: PreparedRemeasurement
    records: Mapping[CaseKey, Measurement]
    anchors: Mapping[CaseKey, Measurement]

    @property
    def note(self) -> str:
        """Note for the baselines on the new measurement."""
        return f"again {self.ready.conditions}"


def prepare_remeasurement(
    choice: AcceptedCheckpoint, model_pool: ModelPool
) -> PreparedRemeasurement:
    """Find out what is fresh, and whether everything else is as in the results.

    Raises SpecError where it is not, or where nothing fresh is left, and what `load_prepared_suite`
    and binding raise.
    """
    times = seeds_of(choice.records)
    before = load_prepared_suite(
        choice.suite, choice.choices, choice.data, choice.samples, seeds=times
    )
    suite, dataset = before.suite, before.dataset
    check_data_names(choice.data, [suite], "--data")
    refuse_answers(suite, "--remeasure")
    known = {case.key for case in before.cases}
    missing = sorted(str(key) for key in known - choice.records.keys())
    other = sorted(str(key) for key in choice.records.keys() - known)
    if missing or other:
        what = f"lack {missing[0]}" if missing else f"hold {other[0]}, which it does not have"
        raise SpecError(
            f"suite {suite.name!r} has {len(known)} cases, which share its seed and its samples, "
            f"and the results {what}: run the whole suite"
        )
    key, record = next(iter(choice.records.items()))
    own = f", seed {suite.table.chain.seed}"
    chains = record.identity.get("chain", "").split("; ")
    if not all(chain.endswith(own) for chain in chains):
        raise SpecError(
            f"{key}: the results are of chains {'; '.join(chains)}, and the suite has seed "
            f"{suite.table.chain.seed} now: was it measured again before? Accept results of the "
            "suite as it is"
        )
    for case in before.cases:
        scored = choice.records[case.key]
        if scored.sizes or len(scored.scores) != len(case.categories):
            continue  # the results have no score for each sample
        for category in case.categories:
            ids = {sample.id for sample in dataset.in_category(category)}
            had = set(scored.scores.get(category, scored.scores.get(case.key.part, {})))
            if ids != had:
                raise SpecError(
                    f"{case.key}: the results score {len(had)} samples of {category!r}, here "
                    f"are {len(ids)}, not the same: give --samples and --data as in the run"
                )
    first = next(iter(choice.records.values()))
    _require_same_model(before.assignments, model_pool, first.model, "the results are")
    setting, conditions = _fresh(choice, suite, dataset, before.assignments, model_pool)
    changed = amended(suite, setting)
    fresh = load_data(changed, choice.data, choice.samples).repeated(times)
    prepared = prepare_suite(changed, fresh, choice.choices)
    return PreparedRemeasurement(
        choice=choice,
        before=suite,
        setting=setting,
        conditions=conditions,
        chosen=prepared,
        anchors=tuple(_anchors(choice, prepared, model_pool)),
    )


def measure_again(
    ready: PreparedRemeasurement, model_pool: ModelPool, announce: Announce
) -> Remeasurement:
    """Measure the chosen model, and those that the anchors are of, all cases of each.

    announce: is given a line for each model, and for each of several seeds.
    Raises SpecError where what was measured is not what the results are of, or where the scores are
    the same once more; else what measuring raises.
    """
    records = _measure(ready, ready.chosen, ready.choice.records, model_pool, announce)
    if all(
        _scores(record) == _scores(ready.choice.records[key]) for key, record in records.items()
    ):
        raise SpecError(
            f"every score is the same as before: {ready.conditions} changes nothing. {_REMEDY}"
        )
    anchors: dict[CaseKey, Measurement] = {}
    for prepared, keys in ready.anchors:
        before = {key: ready.choice.anchors[key] for key in keys}
        anchors |= _measure(ready, prepared, before, model_pool, announce)
    return Remeasurement(ready, records, anchors)


def seeds_of(records: Mapping[CaseKey, Measurement]) -> int:
    """The number of seeds of each sample in the results, as `Dataset.repeated` names them."""
    clusters = {name: unit for record in records.values() for name, unit in record.clusters.items()}
    further = [
        int(match[1])
        for name, unit in clusters.items()
        if name.startswith(unit) and (match := _FURTHER_SEED.fullmatch(name.removeprefix(unit)))
    ]
    return 1 + max(further, default=0)


def _scores(record: Measurement) -> list[list[float]]:
    return [sorted(part.values()) for part in record.scores.values()]


def _measure(
    ready: PreparedRemeasurement,
    prepared: PreparedSuite,
    before: Mapping[CaseKey, Measurement],
    model_pool: ModelPool,
    announce: Announce,
) -> dict[CaseKey, Measurement]:
    """The records of the cases that were measured before, means over the seeds."""
    announce(
        f"{prepared.assignments.under_test} {prepared.assignments.subject}: {ready.conditions}"
    )
    records: dict[CaseKey, list[Measurement]] = {key: [] for key in before}
    for number, seeded in enumerate(prepared.under_seeds(ready.choice.seeds), 1):
        if ready.choice.seeds > 1:
            seed = seeded.suite.table.chain.seed
            announce(f"{number} of {ready.choice.seeds}: seed {seed}")
        run = require_chains(seeded.run(model_pool), "--remeasure")
        for case in prepared.cases:
            if case.key in before:
                record = record_of(run.measure(case))
                then, now = before[case.key].identity, record.identity
                names = sorted((then.keys() | now.keys()) - set(_FOLLOWS[ready.setting.table]))
                changed = [name for name in names if then.get(name) != now.get(name)]
                if changed and not records[case.key]:  # further ones have seeds of their own
                    name = changed[0]
                    raise SpecError(
                        f"{case.key}: the results were measured with {name} "
                        f"{then.get(name, '(none)')}, and here it is {now.get(name, '(none)')}: "
                        "give the roles, --data and --samples as in the run"
                    )
                records[case.key].append(record)
    return {key: averaged(measured) for key, measured in records.items()}


# -- what is fresh ---------------------------------------------------------------------------------

_REMEDY = (
    "What helps: samples that the choice did not see (gate with pytest --cep-samples=N, N at most "
    "half of the smallest category, or add samples to the data set), or a model that draws with "
    "its seed"
)


def _fresh(
    choice: AcceptedCheckpoint,
    suite: Suite,
    dataset: Dataset,
    assignments: Assignments,
    model_pool: ModelPool,
) -> tuple[SuiteNumber, str]:
    """Enough held-out samples, else a fresh seed. Raises SpecError where neither helps."""
    held_out = _held_out(choice, suite, dataset)
    seeded = any(
        model_pool.runner(assignments.roles[name]).bound.seeded
        for name in GROWERS
        if name in assignments.roles
    )
    if not seeded and choice.seeds > 1:
        raise SpecError(
            f"--seeds {choice.seeds}: nothing that plays uses its seed, so every measurement would "
            "be the same: leave --seeds out"
        )
    if held_out is not None:
        under = "" if choice.seeds == 1 else f", {_seeds(suite.table.chain.seed, choice.seeds)}"
        return held_out, f"on {choice.samples} held-out samples of each category{under}"
    if not seeded:
        raise SpecError(
            "nothing that plays uses its seed, and no samples are left that the choice did not "
            f"see: measured again, the score would be the same. {_REMEDY}"
        )
    # It follows from the results, so that it cannot be chosen; the further ones follow it.
    used = suite.table.chain.seed
    seed = 1 + int(sha256(f"remeasure {choice.digest}".encode()).hexdigest()[:12], 16) % _SEEDS
    seed = used + 1 if seed <= used < seed + choice.seeds else seed
    return SuiteNumber("chain", "seed", seed), f"{_seeds(seed, choice.seeds)}, on the same samples"


def _seeds(first: int, count: int) -> str:
    return f"under seed {first}" if count == 1 else f"under seeds {first} to {first + count - 1}"


def _held_out(choice: AcceptedCheckpoint, suite: Suite, dataset: Dataset) -> SuiteNumber | None:
    """The setting that skips the samples that were seen.

    None where all of them were, or a category has not as many again that are independent of those.
    """
    if choice.samples is None:
        return None
    setting = SuiteNumber("data", "skip", suite.table.data.skip + choice.samples)
    whole = load_data(amended(suite, SuiteNumber("data", "skip", 0)), choice.data)
    later = whole.without(setting.value)
    if later is None or set(later.categories) != set(whole.categories):
        return None
    fresh = later.limited(choice.samples)
    seen = {sample.unit for sample in dataset.samples}
    enough = all(
        len(fresh.in_category(name)) >= len({s.unit for s in dataset.in_category(name)})
        for name in dataset.categories
    )
    overlap = any(sample.unit in seen for sample in fresh.samples)
    return setting if enough and not overlap else None


# -- what must be as it was ------------------------------------------------------------------------


def _require_same_model(
    assignments: Assignments, model_pool: ModelPool, model: Mapping[str, str], whose: str
) -> None:
    identity = " + ".join(
        describe_role(model_pool.runner(assignments.roles[role]).bound)
        for role in assignments.gated
    )
    if identity != model.get("identity"):
        raise SpecError(
            f"{whose} of {model.get('identity')}, and {assignments.subject!r} is {identity} now: "
            "the checkpoint that was measured is needed (--model, or the roles as in the run)"
        )


def _anchors(
    choice: AcceptedCheckpoint, prepared: PreparedSuite, model_pool: ModelPool
) -> Iterator[tuple[PreparedSuite, frozenset[CaseKey]]]:
    """The suite with each model that anchors are of, other than the chosen one, and their cases.

    Raises SpecError where such a model is not there as it was any more, and where an anchor of the
    chosen model has other scores: one of two models under its identity could not be measured.
    """
    chosen = next(iter(choice.records.values())).model.get("identity")
    specs: dict[str, list[CaseKey]] = {}
    for key, anchor in choice.anchors.items():
        if anchor.model.get("identity") != chosen:
            specs.setdefault(anchor.model.get("spec", ""), []).append(key)
            continue
        record, spread = choice.records[key], anchor.spread
        same = _scores(anchor) == _scores(record)
        if spread is not None:  # of a mean the first measurement counts
            same = spread.first == scores_digest(record.scores)
        if not same:
            raise SpecError(
                f"one identity answered in two ways: the anchor of {key} is of {chosen}, as the "
                "results are, and has other scores. Look whether its weights moved or a library "
                "was upgraded, or forget the steps until here with --move-anchor"
            )
    for spec, keys in specs.items():
        choices = replace(choice.choices, model=spec)
        model, whose = choice.anchors[keys[0]].model, f"the anchor of {keys[0]} is"
        try:
            suite = prepare_suite(prepared.suite, prepared.dataset, choices)
            _require_same_model(suite.assignments, model_pool, model, whose)
        except CepError as error:
            raise SpecError(
                f"what later steps are held to cannot be measured again ({error}). Bring {spec!r} "
                "back, or forget the steps until here with --move-anchor"
            ) from error
        yield suite, frozenset(keys)
