"""The measuring of a prepared study, cell by cell, by the same code as the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_cepbench.chains import CallCounts, Modality, total
from pytest_cepbench.errors import CepError, MeasurementError, StoreError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics.diversity import word_statistics
from pytest_cepbench.models.torch_runtime import release_memory
from pytest_cepbench.studies.calibration import Announce
from pytest_cepbench.studies.grids import CONFIDENCE, Results, make_grids, make_weightings
from pytest_cepbench.studies.prepared_study import PreparedStudy, StudyRun, notes_of
from pytest_cepbench.studies.study_data import Column, LengthStatistics, Study, StudyUsage
from pytest_cepbench.suites import Case, ChainRun, ModelPool
from pytest_cepbench.suites.chain_run import require_chains


def run_study(prepared: PreparedStudy, model_pool: ModelPool, announce: Announce) -> Study:
    """Measure every cell and sum up.

    announce: is given one line for each run that begins. The cells of a model hold its errors.
    Raises StoreError, which concerns all cells.
    """
    results: dict[tuple[str, str, str, str], Measurement | str] = {}
    words: list[LengthStatistics] = []
    tallies: list[CallCounts] = []
    for number, study_run in enumerate(prepared.runs, 1):
        model, variant = study_run.model, study_run.variant
        announce(f"{number} of {len(prepared.runs)}: {model.name}, {variant.setting}")
        tallies += _unload_others(study_run, model_pool)
        run = require_chains(study_run.prepared.run(model_pool), "a study")
        measured = _measure_cases(run, study_run.cases)
        for case, result in zip(study_run.cases, measured, strict=True):
            results[model.name, variant.name, case.key.part, case.key.metric] = result
        if variant.band and any(isinstance(result, Measurement) for result in measured):
            words.append(_count_words(run, study_run))
    tallies += [runner.tally for runner in model_pool.runners.values()]
    return _summarize(prepared, results, words, tallies, model_pool.store.damage)


def _unload_others(study_run: StudyRun, model_pool: ModelPool) -> list[CallCounts]:
    """Unload models that have no role in a run; returns what they did.

    A study names more models than the gate does, and they need not fit into memory together.
    """
    needed = {(own.role, own.spec) for own in study_run.prepared.assignments.roles.values()}
    loaded = [place for place, runner in model_pool.runners.items() if runner.tally.loads]
    tallies = [model_pool.dismiss(place) for place in loaded if place not in needed]
    if tallies:
        release_memory()
    return tallies


def _measure_cases(run: ChainRun, cases: Sequence[Case]) -> list[Measurement | str]:
    results: list[Measurement | str] = []
    broken: str | None = None
    for case in cases:
        if broken is not None:
            results.append(broken)
            continue
        try:
            measured = run.measure(case)
            warnings = (*measured.warnings, *run.warnings(measured))
            results.append(replace(measured, warnings=warnings))
        except MeasurementError as error:
            results.append(str(error))
        except StoreError:
            raise
        except CepError as error:  # a model that does not load does so for no case
            broken = str(error)
            results.append(broken)
    return results


def _count_words(run: ChainRun, study_run: StudyRun) -> LengthStatistics:
    """Word counts of the first description of every chain that has one."""
    read = {
        required.plan.start
        for measure in run.measures.values()
        for required in measure.required_features(None)
    }
    start: Modality = "image" if "image" in read else "text"
    generation = 1 if start == "image" else 2
    chains = run.chain_data.chains(start, run.dataset.samples).values()
    texts = [c.links[generation].text or "" for c in chains if c.has(generation)]
    return LengthStatistics(
        study_run.model.name,
        study_run.variant.name,
        word_statistics(texts, study_run.variant.band),
    )


def _summarize(
    prepared: PreparedStudy,
    results: Results,
    words: Sequence[LengthStatistics],
    tallies: Sequence[CallCounts],
    damage: Sequence[str],
) -> Study:
    spec, suite = prepared.spec, prepared.suite
    return Study(
        study=spec.study,
        suite=suite.name,
        version=suite.table.version,
        file=str(spec.suite),
        data={name: str(value) for name, value in prepared.dataset.identity.items()},
        samples=len(prepared.dataset.samples),
        confidence=CONFIDENCE,
        under_test=prepared.runs[0].prepared.assignments.under_test,
        models=spec.models,
        variants=tuple(Column(variant.name, variant.setting) for variant in prepared.variants),
        players=prepared.models,
        grids=tuple(make_grids(prepared, results)),
        words=tuple(words),
        weightings=tuple(make_weightings(prepared, results)),
        notes=tuple(notes_of(spec, suite)),
        damage=tuple(damage),
        effort=StudyUsage.of(total(tallies)),
    )
