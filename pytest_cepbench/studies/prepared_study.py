"""Everything of a study that can be found out before a model is called: suite, data, models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SpecError, SuiteError, unknown_name
from pytest_cepbench.studies.study_result import StudiedModel
from pytest_cepbench.studies.study_spec import Named, StudySpec
from pytest_cepbench.studies.variants import Variant, choose_metrics, list_variants
from pytest_cepbench.suites import (
    Case,
    ModelPool,
    PreparedSuite,
    RoleChoices,
    Suite,
    load_data,
    load_suite,
    prepare_suite,
)
from pytest_cepbench.suites.measures.base import readers_of
from pytest_cepbench.suites.model_pool import describe_role


@dataclass(frozen=True)
class StudyRun:
    """One model under one variant, before it is measured.

    prepared: the variant's suite with the model under test.
    cases: those of its cases that the study looks at.
    """

    model: Named
    variant: Variant
    prepared: PreparedSuite
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class PreparedStudy:
    """A study that can begin.

    runs: in the order in which they are measured.
    models: all models that are called, those of all roles.
    """

    spec: StudySpec
    suite: Suite
    dataset: Dataset
    variants: tuple[Variant, ...]
    runs: tuple[StudyRun, ...]
    models: tuple[StudiedModel, ...]


def prepare_study(spec: StudySpec, model_pool: ModelPool) -> PreparedStudy:
    """Read the suite and its data, and bind every model.

    Raises what `load_suite`, `load_data`, `prepare_suite`, `list_variants` and `choose_metrics`
    raise, what binding raises, and SpecError where the models under test have different roles.
    """
    suite, chosen_metrics = choose_metrics(spec, load_suite(spec.suite))
    dataset = load_data(suite, spec.data, spec.samples)
    variants = list_variants(spec, suite)
    prepared = {
        (model, variant.name): _prepare(spec, model, variant, dataset)
        for model in spec.models
        for variant in variants
    }
    _require_one_role(prepared)
    runs = []
    for model, variant in _in_order(spec, variants):
        own = prepared[model, variant.name]
        runs.append(
            StudyRun(model, variant, own, _chosen_cases(spec, variant, own, chosen_metrics))
        )
    models = {
        StudiedModel(name, assignment.spec.text, describe_role(model_pool.runner(assignment).bound))
        for own in prepared.values()
        for name, assignment in own.assignments.roles.items()
    }
    ordered = tuple(sorted(models, key=lambda model: (model.seat, model.spec)))
    return PreparedStudy(spec, suite, dataset, variants, tuple(runs), ordered)


def _prepare(spec: StudySpec, model: Named, variant: Variant, dataset: Dataset) -> PreparedSuite:
    choices = RoleChoices(
        model=model.spec,
        role=spec.role,
        roles={**spec.roles, **variant.roles},
        encoders={**spec.encoders, **variant.encoders},
    )
    if choices.replay is not None and spec.study in ("seeds", "lengths"):
        msg = (
            f"{model.spec!r} brings chains that were made elsewhere, with one seed and one prompt: "
            f"it cannot take part in a study of {spec.study}"
        )
        raise SpecError(msg)
    exchanged = choices.assigned.get(variant.seat or "")
    if exchanged is not None and exchanged.source == "--model":
        msg = f"{model.spec!r} is the {variant.seat}, which the study of {spec.study} exchanges"
        raise SpecError(msg)
    return prepare_suite(variant.suite, dataset, choices)


def _require_one_role(prepared: Mapping[tuple[Named, str], PreparedSuite]) -> None:
    roles = {model: suite.assignments.under_test for (model, _), suite in prepared.items()}
    if len(set(roles.values())) > 1:
        listed = ", ".join(f"{model.name} the {role}" for model, role in roles.items())
        msg = f"the models under test have different roles ({listed}): name one with --role"
        raise SpecError(msg)


def _in_order(spec: StudySpec, variants: tuple[Variant, ...]) -> list[tuple[Named, Variant]]:
    """Ordered so that few models are loaded twice: the exchanged ones are outermost."""
    if spec.study in ("generators", "encoders"):
        return [(model, variant) for variant in variants for model in spec.models]
    return [(model, variant) for model in spec.models for variant in variants]


def _chosen_cases(
    spec: StudySpec, variant: Variant, prepared: PreparedSuite, chosen_metrics: Collection[str]
) -> tuple[Case, ...]:
    """The cases that a study looks at: of metrics that the exchanged encoder reads, where it is one."""
    suite, measures = prepared.suite, prepared.measures
    parts = {case.key.part for case in prepared.cases}
    for part in spec.places[1:]:
        if part not in parts:
            msg = f"suite {suite.name!r}: {unknown_name('part', part, parts)}"
            raise SpecError(msg)
    names = [name for name in measures if name in chosen_metrics]
    if spec.study == "encoders":
        names = [
            name
            for name in names
            if variant.seat in readers_of(measures[name].required_features(None))
        ]
        if not names:
            msg = (
                f"suite {suite.name!r}: none of the metrics {', '.join(chosen_metrics)} reads the "
                f"encoder {variant.seat!r}; choose another with --seat"
            )
            raise SuiteError(msg)
    return tuple(c for c in prepared.cases if c.key.metric in names and c.key.part in spec.places)
