"""Measuring a prepared study, cell by cell, by the runs that the gate uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_cepbench.chains import Tally
from pytest_cepbench.errors import CepError, MeasurementError, StoreError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics.words import word_statistics
from pytest_cepbench.models.torch_runtime import release_memory
from pytest_cepbench.studies.grids import Found, make_grids, make_weightings
from pytest_cepbench.studies.preparing import Play, Prepared
from pytest_cepbench.studies.question import Named
from pytest_cepbench.studies.result import Effort, Study, Words
from pytest_cepbench.studies.statistics import CONFIDENCE
from pytest_cepbench.studies.variants import remarks
from pytest_cepbench.suites import Case, Roster, SuiteRun

Tell = Callable[[str], None]


def run_study(prepared: Prepared, roster: Roster, tell: Tell) -> Study:
    """Measure every cell and sum up.

    tell: is given one line for each play that begins. What a model cannot do is told in its cells.
    Raises StoreError, which concerns all cells.
    """
    found: dict[tuple[str, str, str, str], Measurement | str] = {}
    words: list[Words] = []
    gone: list[Tally] = []
    for number, play in enumerate(prepared.plays, 1):
        tell(f"{number} of {len(prepared.plays)}: {play.model.name}, {play.variant.setting}")
        gone += _make_room(play, roster)
        run = SuiteRun(play.variant.suite, prepared.dataset, play.lineup, play.measures, roster)
        measured = _measure(run, play.cases)
        for case, one in zip(play.cases, measured, strict=True):
            found[play.model.name, play.variant.name, case.key.part, case.key.metric] = one
        if play.variant.band is not None and not all(isinstance(one, str) for one in measured):
            words.append(_count(run, play))
    tallies = [*gone, *(runner.tally for runner in roster.runners.values())]
    return _sum_up(prepared, found, words, tallies, roster.store.damage)


def _make_room(play: Play, roster: Roster) -> list[Tally]:
    """Let go of loaded models that have no part in a play; returns what they did.

    A study names more models than the gate does, and they need not fit into memory together.
    """
    staying = {(seat.role, seat.spec) for seat in play.lineup.seats.values()}
    leaving = [p for p, r in roster.runners.items() if r.tally.loads and p not in staying]
    tallies = [roster.runners.pop(place).tally for place in leaving]
    if tallies:
        release_memory()
    return tallies


def _measure(run: SuiteRun, cases: Sequence[Case]) -> list[Measurement | str]:
    found: list[Measurement | str] = []
    broken: str | None = None
    for case in cases:
        if broken is not None:
            found.append(broken)
            continue
        try:
            found.append(run.measure(case))
        except MeasurementError as error:
            found.append(str(error))
        except StoreError:
            raise
        except CepError as error:  # a model that does not load does so for no case
            broken = str(error)
            found.append(broken)
    return found


def _count(run: SuiteRun, play: Play) -> Words:
    """Word counts of the first description of every chain that has one."""
    plans = play.variant.suite.plans
    start = "image" if "image" in plans else "text"
    generation = 1 if start == "image" else 2
    chains = run.evidence.chains(start, run.dataset.samples).values()
    texts = [c.links[generation].text or "" for c in chains if c.has(generation)]
    return Words(play.model.name, play.variant.name, word_statistics(texts, play.variant.band))


def _sum_up(
    prepared: Prepared,
    found: Found,
    words: Sequence[Words],
    tallies: Sequence[Tally],
    damage: Sequence[str],
) -> Study:
    question, suite = prepared.question, prepared.suite
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
        variants=tuple(Named(one.name, one.setting) for one in prepared.variants),
        players=prepared.players,
        grids=tuple(make_grids(prepared, found)),
        words=tuple(words),
        weightings=tuple(make_weightings(prepared, found)),
        notes=tuple(remarks(question, suite)),
        damage=tuple(damage),
        effort=Effort(
            loads=sum(tally.loads for tally in tallies),
            inputs=sum(tally.inputs for tally in tallies),
            hits=sum(tally.hits for tally in tallies),
            model_seconds=sum(tally.seconds for tally in tallies),
        ),
    )
