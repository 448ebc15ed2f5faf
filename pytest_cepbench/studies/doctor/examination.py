"""The examination of a suite as it is set up: played under a few seeds, then checked; nothing is gated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.chains import total
from pytest_cepbench.errors import CepError, StoreError
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import PreparedCalibration, Tell, calibrate
from pytest_cepbench.studies.doctor.case_checks import (
    chance_floors,
    cost_of_a_run,
    measurability,
    visible_drops,
)
from pytest_cepbench.studies.doctor.diagnosis import Check, Diagnosis
from pytest_cepbench.studies.doctor.inputs import constant_outputs, duplicates
from pytest_cepbench.studies.doctor.model_checks import (
    REPEATABILITY,
    encoder_sensitivity,
    generator_repeatability,
    sensitivity_name,
)
from pytest_cepbench.studies.doctor.setup import MeasuredSuite
from pytest_cepbench.studies.study_result import StudiedModel, StudyUsage
from pytest_cepbench.suites import ModelPool, SuiteRun
from pytest_cepbench.suites.model_pool import describe_role


def examine(
    rehearsal: PreparedCalibration, roster: ModelPool, baselines: Path, tell: Tell
) -> Diagnosis:
    """Play the suite and check it.

    rehearsal: with the suite's own seed first. baselines: folder of accepted ones, which may hold
    the noise of a case. tell: is given a line for each part. Raises StoreError, which concerns all
    checks.
    """
    found = calibrate(rehearsal, roster, tell)
    play = rehearsal.plays[0]
    run = SuiteRun(play.suite, rehearsal.dataset, play.lineup, play.measures, roster)
    with TemporaryDirectory(prefix="cepbench-doctor-") as folder, Store(Path(folder)) as again:
        setup = MeasuredSuite(run, rehearsal.cases, tuple(found), roster, again)
        checks = [
            measurability(found),
            chance_floors(found),
            visible_drops(found, baselines),
            *_of_setup(setup, tell),
        ]
    spent = total(runner.tally for runner in roster.runners.values())
    lineup, table = play.lineup, rehearsal.suite.table
    return Diagnosis(
        suite=rehearsal.suite.name,
        version=table.version,
        file=str(rehearsal.suite.file),
        data={name: str(value) for name, value in rehearsal.dataset.identity.items()},
        samples=len(rehearsal.dataset.samples),
        seeds=tuple(play.seed for play in rehearsal.plays),
        under_test=lineup.under_test,
        model=lineup.subject,
        players=tuple(
            StudiedModel(name, seat.spec.text, describe_role(roster.runner(seat).bound))
            for name, seat in lineup.seats.items()
        ),
        checks=tuple(checks),
        damage=tuple(roster.store.damage),
        effort=StudyUsage(
            spent.loads, spent.inputs, spent.hits, model_seconds=spent.seconds, usage=spent.usage
        ),
    )


def _of_setup(setup: MeasuredSuite, tell: Tell) -> Iterator[Check]:
    """The checks that ask models or look at chains; what one of them cannot do is its own affair."""
    wanted: list[tuple[str, Callable[[], Check]]] = [
        ("constant outputs", lambda: constant_outputs(setup)),
        ("duplicates among the samples", lambda: duplicates(setup)),
        *(
            (sensitivity_name(one), partial(encoder_sensitivity, setup, one))
            for one in setup.comparisons()
        ),
        (REPEATABILITY, lambda: generator_repeatability(setup)),
        ("cost of a run", lambda: cost_of_a_run(setup)),
    ]
    for name, check in wanted:
        tell(name)
        try:
            yield check()
        except StoreError:
            raise
        except CepError as error:
            yield Check(name, "problem", (f"could not be checked: {error}",))
