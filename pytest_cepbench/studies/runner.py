"""Measuring a prepared study, cell by cell, by the runs that the gate uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_cepbench.chains import CallCounts, Modality, total
from pytest_cepbench.errors import CepError, MeasurementError, StoreError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics.length_bands import word_statistics
from pytest_cepbench.models.torch_runtime import release_memory
from pytest_cepbench.studies.grids import Found, make_grids, make_weightings
from pytest_cepbench.studies.preparation import PreparedStudy, StudyModels
from pytest_cepbench.studies.study_result import Column, LengthStatistics, Study, StudyUsage
from pytest_cepbench.studies.summary_statistics import CONFIDENCE
from pytest_cepbench.studies.variants import remarks
from pytest_cepbench.suites import Case, ModelPool, SuiteRun

Tell = Callable[[str], None]


def run_study(prepared: PreparedStudy, roster: ModelPool, tell: Tell) -> Study:
    """Measure every cell and sum up.

    tell: is given one line for each play that begins. What a model cannot do is told in its cells.
    Raises StoreError, which concerns all cells.
    """
    found: dict[tuple[str, str, str, str], Measurement | str] = {}
    words: list[LengthStatistics] = []
    gone: list[CallCounts] = []
    for number, play in enumerate(prepared.plays, 1):
        tell(f"{number} of {len(prepared.plays)}: {play.model.name}, {play.variant.setting}")
        gone += _make_room(play, roster)
        measured, counted = _measure(prepared, play, roster)
        for case, one in zip(play.cases, measured, strict=True):
            found[play.model.name, play.variant.name, case.key.part, case.key.metric] = one
        words += counted
    tallies = [*gone, *(runner.tally for runner in roster.runners.values())]
    return _sum_up(prepared, found, words, tallies, roster.store.damage)


def _measure(
    prepared: PreparedStudy, play: StudyModels, roster: ModelPool
) -> tuple[list[Measurement | str], list[LengthStatistics]]:
    """What comes of each case, and the word counts where a length was asked for.

    The run and its models are let go of at the end.
    """
    run = SuiteRun(play.variant.suite, prepared.dataset, play.lineup, play.measures, roster)
    measured = _measure_cases(run, play.cases)
    any_chains = any(isinstance(one, Measurement) for one in measured)
    return measured, [_count(run, play)] if play.variant.band and any_chains else []


def _make_room(play: StudyModels, roster: ModelPool) -> list[CallCounts]:
    """Let go of loaded models that have no part in a play; returns what they did.

    A study names more models than the gate does, and they need not fit into memory together.
    """
    staying = {(seat.role, seat.spec) for seat in play.lineup.seats.values()}
    leaving = [p for p, r in roster.runners.items() if r.tally.loads and p not in staying]
    tallies = [roster.dismiss(place) for place in leaving]
    if tallies:
        release_memory()
    return tallies


def _measure_cases(run: SuiteRun, cases: Sequence[Case]) -> list[Measurement | str]:
    found: list[Measurement | str] = []
    broken: str | None = None
    for case in cases:
        if broken is not None:
            found.append(broken)
            continue
        try:
            measured = run.measure(case)
            warnings = (*measured.warnings, *run.warnings(measured))
            found.append(replace(measured, warnings=warnings))
        except MeasurementError as error:
            found.append(str(error))
        except StoreError:
            raise
        except CepError as error:  # a model that does not load does so for no case
            broken = str(error)
            found.append(broken)
    return found


def _count(run: SuiteRun, play: StudyModels) -> LengthStatistics:
    """Word counts of the first description of every chain that has one."""
    read = {plan.start for measure in play.measures.values() for plan in measure.plans}
    start: Modality = "image" if "image" in read else "text"
    generation = 1 if start == "image" else 2
    chains = run.evidence.chains(start, run.dataset.samples).values()
    texts = [c.links[generation].text or "" for c in chains if c.has(generation)]
    return LengthStatistics(
        play.model.name, play.variant.name, word_statistics(texts, play.variant.band)
    )


def _sum_up(
    prepared: PreparedStudy,
    found: Found,
    words: Sequence[LengthStatistics],
    tallies: Sequence[CallCounts],
    damage: Sequence[str],
) -> Study:
    question, suite = prepared.question, prepared.suite
    spent = total(tallies)
    return Study(
        study=question.study,
        suite=suite.name,
        version=suite.table.version,
        file=str(question.suite),
        data={name: str(value) for name, value in prepared.dataset.identity.items()},
        samples=len(prepared.dataset.samples),
        confidence=CONFIDENCE,
        under_test=prepared.plays[0].lineup.under_test,
        models=question.models,
        variants=tuple(Column(one.name, one.setting) for one in prepared.variants),
        players=prepared.players,
        grids=tuple(make_grids(prepared, found)),
        words=tuple(words),
        weightings=tuple(make_weightings(prepared, found)),
        notes=tuple(remarks(question, suite)),
        damage=tuple(damage),
        effort=StudyUsage(
            spent.loads, spent.inputs, spent.hits, model_seconds=spent.seconds, usage=spent.usage
        ),
    )
