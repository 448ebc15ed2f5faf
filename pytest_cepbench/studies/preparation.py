"""Everything of a study that can be found out before a model is asked: suite, data, who plays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SpecError, SuiteError, unknown_name
from pytest_cepbench.studies.spec import Named, StudySpec
from pytest_cepbench.studies.study_result import StudiedModel
from pytest_cepbench.studies.variants import Variant, choose_metrics, list_variants
from pytest_cepbench.suites import (
    Assignments,
    Case,
    ModelPool,
    RoleChoices,
    Suite,
    cast_suite,
    list_cases,
    load_data,
    load_suite,
)
from pytest_cepbench.suites.measures import Measure
from pytest_cepbench.suites.model_pool import describe_role


@dataclass(frozen=True)
class StudyModels:
    """One model under one variant, everything settled but the measuring."""

    model: Named
    variant: Variant
    lineup: Assignments
    measures: Mapping[str, Measure]
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class PreparedStudy:
    """A study that can begin.

    plays: in the order in which they are measured. players: everybody who takes part.
    """

    question: StudySpec
    suite: Suite
    dataset: Dataset
    variants: tuple[Variant, ...]
    plays: tuple[StudyModels, ...]
    players: tuple[StudiedModel, ...]


def prepare(question: StudySpec, roster: ModelPool) -> PreparedStudy:
    """Read the suite and its data, and find out of every model whether it can play.

    Raises what `load_suite`, `load_data`, `cast_suite`, `list_variants` and `choose_metrics` raise,
    what binding raises, and SpecError where the models under test play different roles.
    """
    suite, looked_at = choose_metrics(question, load_suite(question.suite))
    dataset = load_data(suite, question.data, question.samples)
    variants = list_variants(question, suite)
    casts = {
        (model, variant.name): _cast(question, model, variant)
        for model in question.models
        for variant in variants
    }
    _require_one_role(casts)
    plays = []
    for model, variant in _in_order(question, variants):
        lineup, measures = casts[model, variant.name]
        found = list_cases(measures, suite.name, dataset, suite.table.groups)
        cases = _chosen(question, suite, variant, measures, found, looked_at)
        plays.append(StudyModels(model, variant, lineup, measures, cases))
    players = {
        StudiedModel(name, seat.spec.text, describe_role(roster.runner(seat).bound))
        for lineup, _ in casts.values()
        for name, seat in lineup.seats.items()
    }
    ordered = tuple(sorted(players, key=lambda one: (one.seat, one.spec)))
    return PreparedStudy(question, suite, dataset, variants, tuple(plays), ordered)


def _cast(
    question: StudySpec, model: Named, variant: Variant
) -> tuple[Assignments, dict[str, Measure]]:
    choices = RoleChoices(
        model=model.spec,
        role=question.role,
        roles={**question.roles, **variant.roles},
        encoders={**question.encoders, **variant.encoders},
    )
    if choices.replay is not None and question.study in ("seeds", "lengths"):
        msg = (
            f"{model.spec!r} brings chains that were made elsewhere, with one seed and one prompt: "
            f"it cannot take part in a study of {question.study}"
        )
        raise SpecError(msg)
    exchanged = choices.seats.get(variant.seat or "")
    if exchanged is not None and exchanged.source == "--model":
        msg = f"{model.spec!r} plays the {variant.seat}, which the study of {question.study} exchanges"
        raise SpecError(msg)
    return cast_suite(variant.suite, choices)


def _require_one_role(
    casts: Mapping[tuple[Named, str], tuple[Assignments, dict[str, Measure]]],
) -> None:
    roles = {model: lineup.under_test for (model, _), (lineup, _) in casts.items()}
    if len(set(roles.values())) > 1:
        said = ", ".join(f"{model.name} the {role}" for model, role in roles.items())
        msg = f"the models under test play different roles ({said}): say one with --role"
        raise SpecError(msg)


def _in_order(question: StudySpec, variants: tuple[Variant, ...]) -> list[tuple[Named, Variant]]:
    """Such that as few models as possible are loaded twice: the exchanged ones go outermost."""
    if question.study in ("generators", "encoders"):
        return [(model, variant) for variant in variants for model in question.models]
    return [(model, variant) for model in question.models for variant in variants]


def _chosen(
    question: StudySpec,
    suite: Suite,
    variant: Variant,
    measures: Mapping[str, Measure],
    cases: Collection[Case],
    looked_at: Collection[str],
) -> tuple[Case, ...]:
    """The cases that are looked at: of metrics that the exchanged encoder reads, where it is one."""
    parts = {case.key.part for case in cases}
    for part in question.places[1:]:
        if part not in parts:
            msg = f"suite {suite.name!r}: {unknown_name('part', part, parts)}"
            raise SpecError(msg)
    names = [name for name in measures if name in looked_at]
    if question.study == "encoders":
        names = [name for name in names if variant.seat in measures[name].seats]
        if not names:
            msg = (
                f"suite {suite.name!r}: none of the metrics {', '.join(looked_at)} reads the encoder "
                f"{variant.seat!r}; choose another with --seat"
            )
            raise SuiteError(msg)
    return tuple(c for c in cases if c.key.metric in names and c.key.part in question.places)
