"""The columns of a study: the suite as it stands, with one thing changed in each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pytest_cepbench.errors import SpecError, SuiteError, unknown_name
from pytest_cepbench.metrics.length_bands import LENGTH_BANDS, LengthBand
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.studies.study_spec import StudySpec
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.measures import ENCODER, MetricTable
from pytest_cepbench.suites.measures.chain_similarity import SimilarityTable
from pytest_cepbench.suites.measures.failures import FailuresTable

LAST = "{}-last"
"""Names the metric s(T) that `weighting` puts beside a metric of the suite."""

_STATED = re.compile(r"[^.\n]*\b\d+\s+words\b[^.\n]*", re.IGNORECASE)


@dataclass(frozen=True)
class Variant:
    """One column.

    name: its head.
    setting: what was changed, in full.
    suite: the suite with the change.
    roles, encoders: specs that belong to the change; seat: the role that they fill, if any.
    band: the length that was asked for.
    """

    name: str
    setting: str
    suite: Suite
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    seat: str | None = None
    band: LengthBand | None = None


def list_variants(spec: StudySpec, suite: Suite) -> tuple[Variant, ...]:
    """The columns of a study.

    Raises SuiteError where the suite has nothing that the study could vary, SpecError for an
    encoder that the suite does not have.
    """
    if spec.study == "seeds":
        return tuple(_seeds(spec, suite))
    if spec.study == "generators":
        return tuple(
            Variant(
                generator.name,
                f"generator {generator.spec}",
                suite,
                {"generator": generator.spec},
                {},
                "generator",
            )
            for generator in spec.variants
        )
    if spec.study == "encoders":
        return tuple(_encoders(spec, suite))
    if spec.study == "lengths":
        return tuple(_lengths(suite))
    return (Variant("as it is", "nothing", suite),)


def choose_metrics(spec: StudySpec, suite: Suite) -> tuple[Suite, tuple[str, ...]]:
    """The suite with the metrics that a study needs, and the names of those that it looks at.

    Failures are counted over all that a suite reads: where they are looked at, all metrics stay.
    Raises SpecError for a metric that the suite does not have, SuiteError as `_both_weightings`.
    """
    names = tuple(suite.metrics) if spec.metrics is None else spec.metrics
    for name in names:
        if name not in suite.metrics:
            msg = f"suite {suite.name!r}: {unknown_name('metric', name, suite.metrics)}"
            raise SpecError(msg)
    if spec.study == "weighting":
        metrics = _both_weightings(suite, names, asked=spec.metrics is not None)
        return msgspec.structs.replace(suite, metrics=metrics), tuple(metrics)
    if any(isinstance(suite.metrics[name], FailuresTable) for name in names):
        return suite, names
    chosen = {name: suite.metrics[name] for name in suite.metrics if name in names}
    return msgspec.structs.replace(suite, metrics=chosen), names


def remarks(spec: StudySpec, suite: Suite) -> Iterator[str]:
    """Notes on a suite for the readers of a study, a sentence each."""
    if spec.study != "lengths":
        return
    prompts = suite.table.prompts
    stated = other_length(prompts.describe)
    if stated is not None:
        yield f"the suite's prompt says of the length itself: {stated!r}; the band's sentence follows it"
    if prompts.max_words is not None:
        yield (
            f"descriptions are cut at {prompts.max_words} words before they are drawn, as the "
            "suite says; the word counts are those before the cut"
        )


def _seeds(spec: StudySpec, suite: Suite) -> Iterator[Variant]:
    for seed in spec.variants:
        chain = msgspec.structs.replace(suite.table.chain, seed=int(seed.spec))
        yield Variant(seed.name, f"seed {seed.spec}", _with(suite, chain=chain))


def _encoders(spec: StudySpec, suite: Suite) -> Iterator[Variant]:
    seat = spec.seat
    known = (ENCODER, *suite.table.encoders)
    if seat not in known:
        msg = f"suite {suite.name!r}: {unknown_name('encoder', seat, known)}"
        raise SpecError(msg)
    for encoder in spec.variants:
        setting = f"{seat} {encoder.spec}"
        if seat == ENCODER:
            yield Variant(encoder.name, setting, suite, {"encoder": encoder.spec}, {}, seat)
        else:
            yield Variant(encoder.name, setting, suite, {}, {seat: encoder.spec}, seat)


def _lengths(suite: Suite) -> Iterator[Variant]:
    prompts = suite.table.prompts
    plans = suite.plans.values()
    if not any(plan.describes(g) for plan in plans for g in range(1, plan.generations + 1)):
        msg = f"suite {suite.name!r}: nothing is described in its chains, so no length can be asked for"
        raise SuiteError(msg)
    for band in LENGTH_BANDS:
        describe = prompt_for(prompts.describe, band)
        asked = msgspec.structs.replace(prompts, describe=describe)
        setting = f"descriptions of {band.name} words"
        yield Variant(band.name, setting, _with(suite, prompts=asked), band=band)


def _with(suite: Suite, **tables: object) -> Suite:
    return msgspec.structs.replace(suite, table=msgspec.structs.replace(suite.table, **tables))


def _both_weightings(suite: Suite, names: Sequence[str], *, asked: bool) -> dict[str, MetricTable]:
    """GC@T and s(T) on the same chains, by the same encoder, for each metric of similarities.

    Of metrics that were not asked for by name, those that cannot be compared are passed over, and
    so are those over the same similarities as an earlier one.
    Raises SuiteError where none is left, or one that was asked for is none.
    """
    metrics: dict[str, MetricTable] = {}
    seen = set()
    for name in names:
        table = suite.metrics[name]
        if isinstance(table, SimilarityTable) and _last(suite, name, table) > 1:
            same = (_last(suite, name, table), table.encoder, table.start)
            if asked or same not in seen:
                seen.add(same)
                metrics[name] = msgspec.structs.replace(table, kind="gc")
                metrics[LAST.format(name)] = msgspec.structs.replace(table, kind="s")
        elif asked:
            msg = f"suite {suite.name!r}: metric {name!r} {_NO_WEIGHTS}"
            raise SuiteError(msg)
    if not metrics:
        msg = f"suite {suite.name!r}: every metric {_NO_WEIGHTS}"
        raise SuiteError(msg)
    return metrics


_NO_WEIGHTS = "has no weights to compare: a metric gc, s or sim over chains of two iterations or more is needed"


def _last(suite: Suite, name: str, table: SimilarityTable) -> int:
    if table.at is not None:
        return table.at
    return 1 if (table.kind or name) == "sim" else suite.table.chain.length // 2


# -- the describe prompt in three lengths -----------------------------------------------------------


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


def other_length(prompt: str) -> str | None:
    """A prompt's own words on a number of words, other than those of a band; None where it has none.

    The sentence of a band may contradict it: which of the two a model follows is its own affair.
    """
    if any(_clause(band).search(prompt) for band in LENGTH_BANDS):
        return None
    stated = _STATED.search(prompt)
    return stated[0].strip() if stated else None


def _clause(band: LengthBand) -> re.Pattern[str]:
    """The band's words, wherever a suite file breaks its lines."""
    words = map(re.escape, band.constraint.split())
    return re.compile(r"\b" + r"\s+".join(words) + r"\b", re.IGNORECASE)
