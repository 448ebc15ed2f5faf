"""A study before a model is called: its columns, its suite and samples, its models.

A column is the suite as it stands with one thing changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import msgspec

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SpecError, SuiteError, unknown_name
from pytest_cepbench.measures import ENCODER, MetricTable
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.measures.chain_similarity import SimilarityTable
from pytest_cepbench.measures.text_quality import FailuresTable
from pytest_cepbench.metrics.diversity import LENGTH_BANDS, LengthBand
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.studies.study_data import Named, StudiedModel, StudySpec
from pytest_cepbench.suites import (
    Assignments,
    Case,
    ModelPool,
    PreparedSuite,
    RoleChoices,
    Suite,
    load_data,
    load_suite,
    prepare_suite,
)
from pytest_cepbench.suites.chain_run import refuse_answers
from pytest_cepbench.suites.model_options import check_data_names
from pytest_cepbench.suites.model_pool import describe_role

LAST = "{}-last"
"""Names the metric s(T) that `weighting` puts beside a metric of the suite."""

_ACCEPTED = "accepted answers are needed, and a study has none"

_AGAINST_GOLD = (
    'let answers battle the reference answers, by against = "gold" under [arena] in a copy of the '
    "suite, or each other, by `cepbench arena play`"
)

_OF_ANSWERS = ("seeds", "generators")
"""Studies that suites of interleaved answers have too."""

_STATED_LENGTH = re.compile(r"[^.\n]*\b\d+\s+words\b[^.\n]*", re.IGNORECASE)

_NO_WEIGHTS = (
    "has no weights to compare: a metric gc, s or sim over chains of two iterations or more "
    "is needed"
)


@dataclass(frozen=True)
class Variant:
    """One column.

    name: its head.
    setting: what was changed, in full.
    suite: the suite with the change.
    roles, encoders: specs that belong to the change.
    exchanged: the role that they fill, if any.
    band: the length that descriptions are asked to have.
    """

    name: str
    setting: str
    suite: Suite
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    exchanged: str | None = None
    band: LengthBand | None = None


@dataclass(frozen=True)
class StudyRun:
    """One model under one variant, before it is measured.

    prepared: the variant's suite with the model under test.
    cases: those of its cases that the study shows.
    """

    model: Named
    variant: Variant
    prepared: PreparedSuite
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class PreparedStudy:
    """A study that can begin.

    dataset: the samples, each as often as it has seeds.
    runs: in the order in which they are measured.
    models: all models that are called, those of all roles.
    notes: on the suite, a sentence each.
    """

    spec: StudySpec
    suite: Suite
    dataset: Dataset
    variants: tuple[Variant, ...]
    runs: tuple[StudyRun, ...]
    models: tuple[StudiedModel, ...]
    notes: tuple[str, ...]


def prepare_study(spec: StudySpec, model_pool: ModelPool) -> PreparedStudy:
    """Read the suite and its data, and bind every model.

    Raises what `load_suite`, `load_data` and `prepare_suite` raise, what binding raises, SuiteError
    where the suite has nothing that the study could vary, and SpecError for names that the suite
    does not have, for models under test of different roles, and for chains that were made elsewhere
    where the study or the suite needs several of a sample.
    """
    loaded = load_suite(spec.suite)
    if spec.study not in _OF_ANSWERS:
        refuse_answers(loaded, f"a study of {spec.study}")
    check_data_names(spec.data, [loaded], "--data")
    suite, metrics = _chosen_metrics(spec, loaded)
    dataset = load_data(suite, spec.data, spec.samples).repeated(suite.seeds)
    variants = tuple(_variants(spec, suite))
    pairs: list[tuple[Named, Variant]] = list(product(spec.models, variants))
    if spec.study in ("generators", "encoders"):  # few models are loaded twice in this order
        pairs.sort(key=lambda pair: variants.index(pair[1]))
    suites = [_prepare(spec, model, variant, dataset) for model, variant in pairs]
    roles = {
        pair[0].name: own.assignments.under_test for pair, own in zip(pairs, suites, strict=True)
    }
    if len(set(roles.values())) > 1:
        listed = ", ".join(f"{model} the {role}" for model, role in roles.items())
        raise SpecError(
            f"the models under test have different roles ({listed}): name one with --role"
        )
    runs = tuple(
        StudyRun(model, variant, own, tuple(_shown_cases(spec, variant, own, metrics)))
        for (model, variant), own in zip(pairs, suites, strict=True)
    )
    models = {model for own in suites for model in studied_models(own.assignments, model_pool)}
    ordered = tuple(sorted(models, key=lambda model: (model.seat, model.spec)))
    notes = tuple(notes_of(spec, loaded))
    return PreparedStudy(spec, suite, dataset, variants, runs, ordered, notes)


def studied_models(assignments: Assignments, model_pool: ModelPool) -> list[StudiedModel]:
    """The models of all roles of a suite. Raises what binding raises."""
    return [
        StudiedModel(name, assignment.spec.text, describe_role(model_pool.runner(assignment).bound))
        for name, assignment in assignments.roles.items()
    ]


def _prepare(spec: StudySpec, model: Named, variant: Variant, dataset: Dataset) -> PreparedSuite:
    choices = RoleChoices(
        model=model.spec,
        role=spec.role,
        roles={**spec.roles, **variant.roles},
        encoders={**spec.encoders, **variant.encoders},
    )
    if choices.replay is not None and spec.study in ("seeds", "lengths"):
        raise SpecError(
            f"{model.spec!r} brings what was made elsewhere, with one seed and one prompt: "
            f"it cannot take part in a study of {spec.study}"
        )
    seeds = variant.suite.seeds
    if choices.replay is not None and seeds > 1:
        made = "chain" if variant.suite.answer_plan is None else "answer"
        raise SpecError(
            f"{model.spec!r} brings one {made} of each sample, and suite {variant.suite.name!r} "
            f"needs {seeds} ([{made}] seeds): set it to 1 in a copy of the suite"
        )
    exchanged = choices.assigned.get(variant.exchanged or "")
    if exchanged is not None and exchanged.source == "--model":
        raise SpecError(
            f"{model.spec!r} is the {variant.exchanged}, which the study of {spec.study} exchanges"
        )
    prepared = prepare_suite(variant.suite, dataset, choices)
    if variant.exchanged == "generator" and "generator" not in prepared.assignments.roles:
        under_test = prepared.assignments.under_test
        hint = ": where it can write for one, add --role=writer"
        raise SpecError(
            f"suite {variant.suite.name!r}: nothing is drawn for {model.spec!r}, the {under_test}, "
            f"by a generator that could be exchanged{hint if under_test == 'interleaver' else ''}"
        )
    return prepared


def _shown_cases(
    spec: StudySpec, variant: Variant, prepared: PreparedSuite, metrics: Collection[str]
) -> Iterator[Case]:
    """The cases that a study shows; only those that read the exchanged encoder, where it is one."""
    suite = prepared.suite
    parts = {case.key.part for case in prepared.cases}
    for part in spec.shown_parts[1:]:
        if part not in parts:
            raise SpecError(f"suite {suite.name!r}: {unknown_name('part', part, parts)}")
    names = [
        name
        for name in metrics
        if spec.study != "encoders"
        or variant.exchanged in readers_of(prepared.chain_measures[name].required_features(None))
    ]
    if not names:
        raise SuiteError(
            f"suite {suite.name!r}: none of the metrics {', '.join(metrics)} reads the "
            f"encoder {variant.exchanged!r}; choose another with --seat"
        )
    for case in prepared.cases:
        if case.key.metric in names and case.key.part in spec.shown_parts:
            yield case


def notes_of(spec: StudySpec, suite: Suite) -> Iterator[str]:
    """Notes on a suite for the readers of a study, a sentence each."""
    left = _of_accepted(suite)
    if left and spec.metrics is None:
        yield f"{', '.join(left)} left out: {_ACCEPTED}: {_AGAINST_GOLD}"
    if spec.study != "lengths":
        return
    prompts = suite.table.prompts
    stated = stated_length(prompts.describe)
    if stated is not None:
        yield (
            f"the suite's prompt says of the length itself: {stated!r}; the band's sentence "
            "follows it"
        )
    if prompts.max_words is not None:
        yield (
            f"descriptions are cut at {prompts.max_words} words before they are drawn, as the "
            "suite says; the word counts are those before the cut"
        )


# -- the metrics and columns of each study ---------------------------------------------------------


def _chosen_metrics(spec: StudySpec, suite: Suite) -> tuple[Suite, tuple[str, ...]]:
    """The suite with the metrics that a study needs, and the names of those that it shows.

    Failures are counted over all that a suite reads: where they are shown, all metrics stay. Of
    weightings GC@T and s(T) are there on the same chains, by the same encoder, for each metric of
    similarities; one over the same similarities as an earlier one is left out where none was named.
    Raises SpecError for a metric that the suite does not have, SuiteError for a named one without
    weights and where no metric is left.
    """
    names = tuple(suite.metrics) if spec.metrics is None else spec.metrics
    for name in names:
        if name not in suite.metrics:
            raise SpecError(f"suite {suite.name!r}: {unknown_name('metric', name, suite.metrics)}")
    if suite.answer_plan is not None:
        left = _of_accepted(suite)
        shown = tuple(name for name in names if name not in left)
        if not shown or (spec.metrics is not None and shown != names):
            raise SuiteError(
                f"suite {suite.name!r}: {', '.join(n for n in names if n in left)}: {_ACCEPTED}: "
                f"{_AGAINST_GOLD}"
            )
        names = shown
        chosen = {name: suite.metrics[name] for name in suite.metrics if name in names}
        return msgspec.structs.replace(suite, metrics=chosen), names
    if spec.study != "weighting":
        if any(isinstance(suite.metrics[name], FailuresTable) for name in names):
            return suite, names
        chosen = {name: suite.metrics[name] for name in suite.metrics if name in names}
        return msgspec.structs.replace(suite, metrics=chosen), names
    metrics: dict[str, MetricTable] = {}
    seen = set()
    for name in names:
        table = suite.metrics[name]
        if isinstance(table, SimilarityTable) and (last := _last(suite, name, table)) > 1:
            similarities = (last, table.encoder, table.start)
            if spec.metrics is not None or similarities not in seen:
                seen.add(similarities)
                metrics[name] = msgspec.structs.replace(table, kind="gc")
                metrics[LAST.format(name)] = msgspec.structs.replace(table, kind="s")
        elif spec.metrics is not None:
            raise SuiteError(f"suite {suite.name!r}: metric {name!r} {_NO_WEIGHTS}")
    if not metrics:
        raise SuiteError(f"suite {suite.name!r}: every metric {_NO_WEIGHTS}")
    return msgspec.structs.replace(suite, metrics=metrics), tuple(metrics)


def _of_accepted(suite: Suite) -> list[str]:
    """The metrics of a suite that need answers which the gate has accepted."""
    if suite.answer_plan is None or suite.table.arena.against == "gold":
        return []
    kinds = {name: table.kind or name for name, table in suite.metrics.items()}
    needing = {"win_rate"} if "criteria" in kinds.values() else {"win_rate", "judge_failures"}
    return [name for name, kind in kinds.items() if kind in needing]


def _last(suite: Suite, name: str, table: SimilarityTable) -> int:
    """The last iteration that a metric of similarities reads."""
    if table.at is not None:
        return table.at
    return 1 if (table.kind or name) == "sim" else suite.table.chain.length // 2


def _variants(spec: StudySpec, suite: Suite) -> Iterator[Variant]:
    """The columns of a study.

    Raises SuiteError where the suite has nothing that the study could vary, SpecError for an
    encoder that the suite does not have.
    """
    entries = [(variant.name, variant.spec) for variant in spec.variants]
    seat = spec.seat
    match spec.study:
        case "seeds":
            tables = ("chain",) if suite.answer_plan is None else ("answer", "arena")
            for name, seed in entries:
                seeded = {
                    key: msgspec.structs.replace(getattr(suite.table, key), seed=int(seed))
                    for key in tables
                }
                yield Variant(name, f"seed {seed}", _with(suite, **seeded))
        case "generators":
            for name, generator in entries:
                roles: Mapping[RoleName, str] = {"generator": generator}
                yield Variant(name, f"generator {generator}", suite, roles, {}, "generator")
        case "encoders":
            known = (ENCODER, *suite.table.encoders)
            if seat not in known:
                raise SpecError(f"suite {suite.name!r}: {unknown_name('encoder', seat, known)}")
            for name, encoder in entries:
                roles = {"encoder": encoder} if seat == ENCODER else {}
                further = {} if seat == ENCODER else {seat: encoder}
                yield Variant(name, f"{seat} {encoder}", suite, roles, further, seat)
        case "lengths":
            plans = suite.plans.values()
            if not any(plan.describes(g) for plan in plans for g in range(1, plan.generations + 1)):
                raise SuiteError(
                    f"suite {suite.name!r}: nothing is described in its chains, "
                    "so no length can be asked for"
                )
            prompts = suite.table.prompts
            for band in LENGTH_BANDS:
                asked = prompt_for(prompts.describe, band)
                changed = _with(suite, prompts=msgspec.structs.replace(prompts, describe=asked))
                yield Variant(band.name, f"descriptions of {band.name} words", changed, band=band)
        case "weighting":
            yield Variant("as it is", "nothing", suite)


def _with(suite: Suite, **tables: object) -> Suite:
    return msgspec.structs.replace(suite, table=msgspec.structs.replace(suite.table, **tables))


# -- the describe prompt in three lengths ----------------------------------------------------------


def prompt_for(prompt: str, band: LengthBand) -> str:
    """The prompt, asking for a description within the band.

    Where it asks for one of the bands in MMGenBench's words ("it should be between 20 to 60 words",
    Figure 16), that clause is replaced, and for its own band the prompt stays as it is. Elsewhere a
    sentence is added at its end.
    """
    for known in LENGTH_BANDS:
        clause = _clause(known)
        if clause.search(prompt):
            return prompt if known == band else clause.sub(band.constraint, prompt)
    return f"{prompt.rstrip()} As for the length of the description, {band.constraint}."


def stated_length(prompt: str) -> str | None:
    """A prompt's own words on a number of words, other than those of a band; None if it has none.

    They may contradict the sentence of a band; which of the two a model follows is not known.
    """
    if any(_clause(band).search(prompt) for band in LENGTH_BANDS):
        return None
    stated = _STATED_LENGTH.search(prompt)
    return stated[0].strip() if stated else None


def _clause(band: LengthBand) -> re.Pattern[str]:
    """The band's words, wherever a suite file breaks its lines."""
    words = map(re.escape, band.constraint.split())
    return re.compile(r"\b" + r"\s+".join(words) + r"\b", re.IGNORECASE)
