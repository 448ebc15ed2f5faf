"""Studies: how far the numbers of a suite move when its seed, generator or encoder is another.

A column of a study is the suite as it stands with one thing changed; a row is a model under test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec
import numpy as np

from pytest_cepbench.chains import CallCounts, total
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import (
    CepError,
    MeasurementError,
    SpecError,
    StoreError,
    SuiteError,
    unknown_name,
)
from pytest_cepbench.measures.base import ENCODER, readers_of
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.measures.text_quality import FailuresTable
from pytest_cepbench.metrics.correlation import (
    FEWEST_CORRELATED,
    Correlation,
    Method,
    correlation,
    mean_of_pairs,
    shared_ranks,
)
from pytest_cepbench.metrics.uncertainty import ModelVariability, spread_of, t_upper_quantile
from pytest_cepbench.models.protocols import RoleName, Usage
from pytest_cepbench.models.torch_runtime import release_memory
from pytest_cepbench.studies.calibration import Announce
from pytest_cepbench.suites import (
    Assignments,
    Case,
    ModelPool,
    PreparedSuite,
    RoleChoices,
    Suite,
    SuiteRun,
    load_data,
    load_suite,
    prepare_suite,
)
from pytest_cepbench.suites.chain_run import refuse_answers
from pytest_cepbench.suites.model_pool import describe_role
from pytest_cepbench.suites.role_assignment import Part, check_data_names, check_encoders

StudyName = Literal["seeds", "generators", "encoders"]

SHOWN_DECIMALS = 4
"""Of values in the tables of a study."""

CONFIDENCE = 0.95
"""Level of every interval of a study."""

_RANKS: tuple[Method, ...] = ("spearman", "kendall")

_NEED_ACCEPTED = (
    "accepted answers are needed, and a study has none: let answers battle the reference answers, "
    'by against = "gold" under [arena] in a copy of the suite, or each other, by '
    "`cepbench arena play`"
)

# -- the settings of a study, and its results ------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """A model spec or another setting, and its name in tables."""

    name: str
    spec: str


@dataclass(frozen=True)
class StudySpec:
    """One study of one suite.

    study: which.
    suite: the suite's file.
    models: those under test, each a row.
    variants: the seeds, generators or encoders that are compared.
    encoder_name: of the encoder that `encoders` exchanges: "encoder", or that of a further one.
    role: of the models under test; detected where None.
    roles, encoders: specs that hold for all models, as in `RoleChoices`.
    data: data set name -> path or URL.
    samples: most of each category.
    metrics: names of the suite's metrics; all when None.
    parts: categories, groups or mappings that are shown beside the whole suite.
    Raises SpecError for fewer than two variants, for names that do not tell rows or columns apart,
    and for a model that is there under two names.
    """

    study: StudyName
    suite: Path
    models: tuple[Named, ...]
    variants: tuple[Named, ...] = ()
    encoder_name: str = ENCODER
    role: Part | None = None
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, DataPlace] = field(default_factory=dict)
    samples: int | None = None
    metrics: tuple[str, ...] | None = None
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, entries in (("model", self.models), (self.study[:-1], self.variants)):
            names, specs = [entry.name for entry in entries], [entry.spec for entry in entries]
            for entry in entries:
                if specs.count(entry.spec) > 1:  # it would agree with itself
                    raise SpecError(f"the {what} {entry.spec!r} is given twice: give it once")
                if names.count(entry.name) > 1:
                    raise SpecError(
                        f"two are called {entry.name!r}, each {what} needs a name of its own: "
                        "NAME=SPEC"
                    )
        if len(self.variants) < 2:
            names = [variant.name for variant in self.variants] or ["none"]
            how = "write --seeds=0,1,2,3,4" if self.study == "seeds" else "give several"
            raise SpecError(
                f"a study of {self.study} compares at least two: got {', '.join(names)}; {how}"
            )


@dataclass(frozen=True)
class StudiedModel:
    """A model of a study. seat: its role, or the name of a further encoder."""

    seat: str
    spec: str
    identity: str


@dataclass(frozen=True)
class StudyCell:
    """One number: a model under a variant.

    value: None where it could not be measured; error says why.
    n, failures, identity, notes: as in `Measurement`.
    """

    model: str
    variant: str
    value: float | None = None
    n: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class ModelSpread:
    """One model over the variants that could be measured.

    spread: None where those are fewer than two.
    low, high: ends of the confidence interval of the mean; None where the variants are no random
    sample of anything, or all scored the same.
    """

    model: str
    spread: ModelVariability | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class VariantAgreement:
    """The agreement of the variants on the models.

    variants: rows and columns of the matrix.
    matrix: one coefficient for each two variants, over the models; None where a variant scored all
    models the same.
    mean: over all pairs of different variants; None where a pair has no coefficient.
    """

    method: Method
    variants: tuple[str, ...]
    matrix: tuple[tuple[Correlation | None, ...], ...]
    mean: float | None


@dataclass(frozen=True)
class Grid:
    """One case over all models and variants.

    label: the metric's name for people.
    cells: model by model.
    spreads: one per model.
    complete: the models that were measured wherever any was, over which the rest is computed:
    mean_std, mean_range, agreements.
    undefined: why there are no agreements, where there are none.
    """

    part: str
    metric: str
    label: str
    higher_is_better: bool
    cells: tuple[StudyCell, ...]
    spreads: tuple[ModelSpread, ...] = ()
    complete: tuple[str, ...] = ()
    mean_std: float | None = None
    mean_range: float | None = None
    agreements: tuple[VariantAgreement, ...] = ()
    undefined: str | None = None

    def cell(self, model: str, variant: str) -> StudyCell:
        """The cell of a model under a variant."""
        return next(c for c in self.cells if (c.model, c.variant) == (model, variant))

    def ranks(self, variant: str) -> dict[str, int]:
        """Rank of each measured model under a variant: 1 is best, ties share their best rank.

        Values are compared as they are shown, with four decimals; see `shared_ranks`.
        """
        values = {
            cell.model: cell.value
            for cell in self.cells
            if cell.variant == variant and cell.value is not None
        }
        ranks = shared_ranks(
            list(values.values()), higher_is_better=self.higher_is_better, decimals=SHOWN_DECIMALS
        )
        return dict(zip(values, ranks, strict=True))


@dataclass(frozen=True)
class StudyUsage:
    """The work of a study.

    loads: of models.
    inputs: that models were given.
    hits: results from the store.
    model_seconds: inside the models.
    usage: what servers counted.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    model_seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def of(cls, tallies: Iterable[CallCounts]) -> StudyUsage:
        """The sum of what was counted, as plain data."""
        counts = total(tallies)
        return cls(counts.loads, counts.inputs, counts.hits, counts.seconds, counts.usage)


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """What was measured.

    suite, version, file: name, version and file of the suite.
    data: identity of the data set.
    samples: their number, each counted once for each of its seeds.
    under_test: the role of the models to be gated.
    players: all models that were called, those of the other roles too.
    damage: entries that the store found damaged and computed again.
    effort: the work that it took.
    """

    suite: str
    version: int
    file: str
    data: Mapping[str, str]
    samples: int
    under_test: str
    players: tuple[StudiedModel, ...]
    damage: tuple[str, ...]
    effort: StudyUsage


@dataclass(frozen=True, kw_only=True)
class FinishedStudy(SetUp):
    """A finished study.

    confidence: level of the intervals.
    models: those under test.
    variants: the columns, each with what was changed in full.
    grids: the results.
    notes: on the suite, a sentence each.
    """

    study: StudyName
    confidence: float
    models: tuple[Named, ...]
    variants: tuple[Named, ...]
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]

    @property
    def errors(self) -> tuple[tuple[str, str, str], ...]:
        """(model, variant, why) of what could not be measured, each once."""
        errors = [
            (cell.model, cell.variant, cell.error)
            for grid in self.grids
            for cell in grid.cells
            if cell.error is not None
        ]
        return tuple(dict.fromkeys(errors))


# -- the study -------------------------------------------------------------------------------------

_Place = tuple[Named, Named]
"""A model under test and a variant: a row and a column."""


@dataclass(frozen=True)
class PreparedStudy:
    """A study that can begin.

    suite, dataset: with the metrics and the samples that it needs.
    seated: the suite with one thing changed, for each model under each variant.
    cases: those of them that are shown.
    under_test, players, variants, notes: as of `FinishedStudy`.
    """

    spec: StudySpec
    suite: Suite
    dataset: Dataset
    seated: Mapping[_Place, PreparedSuite]
    cases: Mapping[_Place, tuple[Case, ...]]
    under_test: str
    players: tuple[StudiedModel, ...]
    variants: Mapping[Named, Named]
    notes: tuple[str, ...]


def prepare_study(spec: StudySpec, model_pool: ModelPool) -> PreparedStudy:
    """Read the suite and its data, and bind every model.

    Raises what `load_suite`, `load_data`, `prepare_suite` and binding raise, SuiteError where the
    suite has nothing that the study could vary, and SpecError for names that the suite does not
    have, for models under test of different roles, and for chains that were made elsewhere where
    the study or the suite needs several of a sample.
    """
    loaded = load_suite(spec.suite)
    if spec.study == "encoders":
        refuse_answers(loaded, "a study of encoders")
        known = (ENCODER, *loaded.table.encoders)
        if spec.encoder_name not in known:
            raise SpecError(
                f"suite {loaded.name!r}: {unknown_name('encoder', spec.encoder_name, known)}"
            )
    check_data_names(spec.data, [loaded], "--data")
    check_encoders(spec.encoders, [loaded], "--encoder")
    suite, metrics = _chosen_metrics(spec, loaded)
    dataset = load_data(suite, spec.data, spec.samples).repeated(suite.seeds)
    places: list[_Place] = list(product(spec.models, spec.variants))
    if spec.study != "seeds":  # few models are loaded twice in this order
        places.sort(key=lambda place: spec.variants.index(place[1]))
    seated = {place: _seat(spec, *place, suite, dataset) for place in places}
    roles = {model.name: own.assignments.under_test for (model, _), own in seated.items()}
    if len(set(roles.values())) > 1:
        listed = ", ".join(f"{model} the {role}" for model, role in roles.items())
        raise SpecError(
            f"the models under test have different roles ({listed}): name one with --role"
        )
    cases = {place: _shown_cases(spec, own, metrics) for place, own in seated.items()}
    players = {m for own in seated.values() for m in studied_models(own.assignments, model_pool)}
    changed = spec.encoder_name if spec.study == "encoders" else spec.study[:-1]
    left = _of_accepted(loaded) if spec.metrics is None else []
    return PreparedStudy(
        spec=spec,
        suite=suite,
        dataset=dataset,
        seated=seated,
        cases=cases,
        under_test=next(iter(roles.values())),
        players=tuple(sorted(players, key=lambda model: (model.seat, model.spec))),
        variants={own: Named(own.name, f"{changed} {own.spec}") for own in spec.variants},
        notes=(f"{', '.join(left)} left out: {_NEED_ACCEPTED}",) if left else (),
    )


def run_study(prepared: PreparedStudy, model_pool: ModelPool, announce: Announce) -> FinishedStudy:
    """Measure every cell and sum up.

    announce: is given one line for each model under a variant. The cells of a model hold its
        errors.
    Raises StoreError, which concerns all cells.
    """
    spec, variants = prepared.spec, prepared.variants
    cells: dict[_Place, dict[str, StudyCell]] = {}
    tallies: list[CallCounts] = []
    for number, (place, own) in enumerate(prepared.seated.items(), 1):
        model, variant = place
        announce(f"{number} of {len(prepared.seated)}: {model.name}, {variants[variant].spec}")
        # A study names more models than the gate does, and they need not fit into memory together.
        needed = {(each.role, each.spec) for each in own.assignments.roles.values()}
        loaded_before = [key for key, runner in model_pool.runners.items() if runner.tally.loads]
        unloaded = [model_pool.dismiss(key) for key in loaded_before if key not in needed]
        tallies += unloaded
        if unloaded:
            release_memory()
        cells[place] = _measure_cells(place, own.run(model_pool), prepared.cases[place])
    tallies += [runner.tally for runner in model_pool.runners.values()]
    return FinishedStudy(
        study=spec.study,
        suite=prepared.suite.name,
        version=prepared.suite.table.version,
        file=str(spec.suite),
        data={name: str(value) for name, value in prepared.dataset.identity.items()},
        samples=len(prepared.dataset.samples),
        confidence=CONFIDENCE,
        under_test=prepared.under_test,
        models=spec.models,
        variants=tuple(variants.values()),
        players=prepared.players,
        grids=tuple(_make_grids(prepared, cells)),
        notes=prepared.notes,
        damage=tuple(model_pool.store.damage),
        effort=StudyUsage.of(tallies),
    )


def studied_models(assignments: Assignments, model_pool: ModelPool) -> list[StudiedModel]:
    """The models of all roles of a suite. Raises what binding raises."""
    return [
        StudiedModel(name, assignment.spec.text, describe_role(model_pool.runner(assignment).bound))
        for name, assignment in assignments.roles.items()
    ]


def _chosen_metrics(spec: StudySpec, suite: Suite) -> tuple[Suite, tuple[str, ...]]:
    """The suite with the metrics that a study needs, and the names of those that it shows.

    Failures are counted over all that a suite of chains reads: where they are shown, all stay.
    Raises SpecError for a metric that the suite does not have, SuiteError where none is left.
    """
    names = tuple(suite.metrics) if spec.metrics is None else spec.metrics
    for name in names:
        if name not in suite.metrics:
            raise SpecError(f"suite {suite.name!r}: {unknown_name('metric', name, suite.metrics)}")
    left = _of_accepted(suite)
    shown = tuple(name for name in names if name not in left)
    if not shown or (spec.metrics is not None and shown != names):
        lacking = ", ".join(name for name in names if name in left)
        raise SuiteError(f"suite {suite.name!r}: {lacking}: {_NEED_ACCEPTED}")
    if suite.answer_plan is None and any(
        isinstance(suite.metrics[name], FailuresTable) for name in names
    ):
        return suite, names
    chosen = {name: suite.metrics[name] for name in suite.metrics if name in shown}
    return msgspec.structs.replace(suite, metrics=chosen), shown


def _of_accepted(suite: Suite) -> list[str]:
    """The metrics of a suite that need answers which the gate has accepted."""
    if suite.answer_plan is None or suite.table.arena.against == "gold":
        return []
    kinds = {name: table.kind or name for name, table in suite.metrics.items()}
    needing = {"win_rate"} if "criteria" in kinds.values() else {"win_rate", "judge_failures"}
    return [name for name, kind in kinds.items() if kind in needing]


def _seat(
    spec: StudySpec, model: Named, variant: Named, suite: Suite, dataset: Dataset
) -> PreparedSuite:
    """The suite with one thing changed, and one model under test."""
    roles, encoders = dict(spec.roles), dict(spec.encoders)
    exchanged = ""
    if spec.study == "seeds":
        keys = ("chain",) if suite.answer_plan is None else ("answer", "arena")
        seed = int(variant.spec)
        tables = {
            key: msgspec.structs.replace(getattr(suite.table, key), seed=seed) for key in keys
        }
        suite = msgspec.structs.replace(suite, table=msgspec.structs.replace(suite.table, **tables))
    elif spec.study == "generators":
        roles["generator"] = variant.spec
        exchanged = "generator"
    else:
        exchanged = spec.encoder_name
        if exchanged == ENCODER:
            roles["encoder"] = variant.spec
        else:
            encoders[exchanged] = variant.spec
    choices = RoleChoices(model=model.spec, role=spec.role, roles=roles, encoders=encoders)
    if choices.replay is not None and spec.study == "seeds":
        raise SpecError(
            f"{model.spec!r} brings what was made elsewhere, with one seed: it cannot take part in "
            "a study of seeds"
        )
    if choices.replay is not None and suite.seeds > 1:
        made = "chain" if suite.answer_plan is None else "answer"
        raise SpecError(
            f"{model.spec!r} brings one {made} of each sample, and suite {suite.name!r} "
            f"needs {suite.seeds} ([{made}] seeds): set it to 1 in a copy of the suite"
        )
    assigned = choices.assigned.get(exchanged)
    if assigned is not None and assigned.source == "--model":
        raise SpecError(
            f"{model.spec!r} is the {exchanged}, which the study of {spec.study} exchanges"
        )
    prepared = prepare_suite(suite, dataset, choices)
    if exchanged == "generator" and "generator" not in prepared.assignments.roles:
        under_test = prepared.assignments.under_test
        hint = ": where it can write for one, add --role=writer"
        raise SpecError(
            f"suite {suite.name!r}: nothing is drawn for {model.spec!r}, the {under_test}, "
            f"by a generator that could be exchanged{hint if under_test == 'interleaver' else ''}"
        )
    return prepared


def _shown_cases(
    spec: StudySpec, prepared: PreparedSuite, metrics: Collection[str]
) -> tuple[Case, ...]:
    """The cases that a study shows; only those that read the exchanged encoder, where it is one."""
    suite = prepared.suite
    parts = {case.key.part for case in prepared.cases}
    for part in spec.parts:
        if part not in parts:
            raise SpecError(f"suite {suite.name!r}: {unknown_name('part', part, parts)}")
    names = [
        name
        for name in metrics
        if spec.study != "encoders"
        or spec.encoder_name in readers_of(prepared.measures[name].required_features(None))
    ]
    if not names:
        raise SuiteError(
            f"suite {suite.name!r}: none of the metrics {', '.join(metrics)} reads the "
            f"encoder {spec.encoder_name!r}; choose another with --encoder-name"
        )
    shown = (OVERALL, *spec.parts)
    return tuple(c for c in prepared.cases if c.key.metric in names and c.key.part in shown)


def _measure_cells(place: _Place, run: SuiteRun, cases: Iterable[Case]) -> dict[str, StudyCell]:
    """The cell of each case, by PART/METRIC, of a model under a variant."""
    model, variant = place
    cell = partial(StudyCell, model.name, variant.name)
    cells: dict[str, StudyCell] = {}
    broken = ""
    for case in cases:
        if broken:
            cells[case.key.within] = cell(error=broken)
            continue
        try:
            measured = run.measure(case)
            cells[case.key.within] = cell(
                value=measured.value,
                n=measured.n,
                failures=dict(measured.failures),
                identity=dict(measured.identity),
                notes=(*measured.notes, *measured.warnings, *run.warnings(measured)),
            )
        except MeasurementError as error:
            cells[case.key.within] = cell(error=str(error))
        except StoreError:
            raise
        except CepError as error:  # a model that does not load does so for no case
            broken = str(error)
            cells[case.key.within] = cell(error=broken)
    return cells


def _make_grids(
    prepared: PreparedStudy, measured: Mapping[_Place, Mapping[str, StudyCell]]
) -> Iterator[Grid]:
    """A table with statistics for every case.

    A variant under which nothing could be measured is left out of the statistics.
    """
    spec, seated = prepared.spec, prepared.seated.values()
    first = next(iter(seated))
    for case in next(iter(prepared.cases.values())):
        metric = case.key.metric
        rows = {
            model.name: [measured[model, variant][case.key.within] for variant in spec.variants]
            for model in spec.models
        }
        cells = [cell for row in rows.values() for cell in row]
        values = {
            name: {cell.variant: cell.value for cell in row if cell.value is not None}
            for name, row in rows.items()
        }
        left = [
            own.name for own in spec.variants if any(own.name in row for row in values.values())
        ]
        whole = {name: row for name, row in values.items() if row and len(row) == len(left)}
        columns = {variant: [row[variant] for row in whole.values()] for variant in left}
        sampled = spec.study == "seeds"
        spreads = {name: spread_over(row, sampled=sampled) for name, row in rows.items()}
        # Means over the models, as in MMGenBench, Table 15.
        known = [own for name in whole if (own := spreads[name].spread) is not None]
        labels = {own.measures[metric].label for own in seated}
        defined = len(whole) >= FEWEST_CORRELATED and len(left) > 1
        undefined = (
            f"correlation between {spec.study} is not defined: it needs {FEWEST_CORRELATED} models "
            f"that were measured under the same 2 {spec.study} or more, here are {len(whole)} "
            f"under {len(left)}"
        )
        methods = _RANKS if sampled else ("pearson", *_RANKS)
        yield Grid(
            part=case.key.part,
            metric=metric,
            label=case.label if len(labels) == 1 else metric,  # some labels name the encoder
            higher_is_better=first.measures[metric].higher_is_better,
            cells=tuple(cells),
            spreads=tuple(spreads.values()),
            complete=tuple(whole),
            mean_std=fmean(own.std for own in known) if known else None,
            mean_range=fmean(own.range for own in known) if known else None,
            agreements=agreements(columns, methods) if defined else (),
            undefined=None if defined else undefined,
        )


# -- statistics: spreads of models over variants, agreement of variants on models ------------------


def spread_over(cells: Sequence[StudyCell], *, sampled: bool) -> ModelSpread:
    """The spread of one model over the variants that could be measured; see `spread_of`.

    sampled: whether the variants are drawn at random, as seeds are. Only then the mean has a
    confidence interval: mean -+ t * std / sqrt(runs), t of Student with runs - 1 degrees of
    freedom. Generators and encoders are picked by hand and estimate the mean of no population.
    """
    values = [cell.value for cell in cells if cell.value is not None]
    model = cells[0].model
    if len(values) < 2:
        return ModelSpread(model, None)
    spread = spread_of(np.array(values))
    if not sampled or spread.std == 0:
        return ModelSpread(model, spread)
    t = t_upper_quantile((1 - CONFIDENCE) / 2, spread.runs - 1)
    half = t * spread.std / sqrt(spread.runs)
    return ModelSpread(model, spread, spread.mean - half, spread.mean + half)


def agreements(
    columns: Mapping[str, Sequence[float]], methods: Sequence[Method]
) -> tuple[VariantAgreement, ...]:
    """The agreement of the variants on the models, by several coefficients.

    columns: variant -> one value per model, of at least `FEWEST_CORRELATED` models.
    Source: MMGenBench, Tables 9-13 (generators) and 16-19 (encoders), by Spearman and Kendall.
    """
    arrays = {name: np.array(values) for name, values in columns.items()}
    results = []
    for method in methods:
        cells = tuple(
            tuple(correlation(one, other, method, CONFIDENCE) for other in arrays.values())
            for one in arrays.values()
        )
        values = [[cell.value if cell else None for cell in row] for row in cells]
        results.append(VariantAgreement(method, tuple(arrays), cells, mean_of_pairs(values)))
    return tuple(results)
