"""The examination of a suite: measured under a few seeds, then checked; nothing is gated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.chains import total
from pytest_cepbench.errors import CepError, StoreError
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import Announce, PreparedCalibration, calibrate
from pytest_cepbench.studies.doctor.case_checks import (
    chance_floors,
    cost_of_a_run,
    measurability,
    visible_drops,
)
from pytest_cepbench.studies.doctor.data_checks import constant_outputs, duplicates
from pytest_cepbench.studies.doctor.diagnosis import Check, Diagnosis
from pytest_cepbench.studies.doctor.encoder_checks import encoder_sensitivity, sensitivity_name
from pytest_cepbench.studies.doctor.generator_checks import REPEATABILITY, generator_repeatability
from pytest_cepbench.studies.doctor.measured_suite import MeasuredSuite
from pytest_cepbench.studies.study_result import StudiedModel, StudyUsage
from pytest_cepbench.suites import ModelPool
from pytest_cepbench.suites.model_pool import describe_role


def examine(
    prepared: PreparedCalibration, model_pool: ModelPool, baselines: Path, announce: Announce
) -> Diagnosis:
    """Measure the suite under its seeds, and check it.

    baselines: folder of accepted ones, which may hold the noise of a case.
    announce: is given a line for each part.
    Raises StoreError, which concerns all checks.
    """
    calibrations = calibrate(prepared, model_pool, announce)
    own = prepared.own
    run = own.run(model_pool)
    with TemporaryDirectory(prefix="cepbench-doctor-") as folder, Store(Path(folder)) as again:
        measured_suite = MeasuredSuite(run, own.cases, tuple(calibrations), model_pool, again)
        checks = [
            measurability(calibrations),
            chance_floors(calibrations),
            visible_drops(calibrations, baselines),
            *_of_setup(measured_suite, announce),
        ]
    spent = total(runner.tally for runner in model_pool.runners.values())
    return Diagnosis(
        suite=own.suite.name,
        version=own.suite.table.version,
        file=str(own.suite.file),
        data={name: str(value) for name, value in own.dataset.identity.items()},
        samples=len(own.dataset.samples),
        seeds=prepared.seeds,
        under_test=own.assignments.under_test,
        model=own.assignments.subject,
        players=tuple(
            StudiedModel(
                name, assignment.spec.text, describe_role(model_pool.runner(assignment).bound)
            )
            for name, assignment in own.assignments.roles.items()
        ),
        checks=tuple(checks),
        damage=tuple(model_pool.store.damage),
        effort=StudyUsage(
            spent.loads, spent.inputs, spent.hits, model_seconds=spent.seconds, usage=spent.usage
        ),
    )


def _of_setup(measured_suite: MeasuredSuite, announce: Announce) -> Iterator[Check]:
    """The checks that call models or read chains; one that fails says so, and the others go on."""
    wanted: list[tuple[str, Callable[[], Check]]] = [
        ("constant outputs", lambda: constant_outputs(measured_suite)),
        ("duplicates among the samples", lambda: duplicates(measured_suite)),
        *(
            (sensitivity_name(comparison), partial(encoder_sensitivity, measured_suite, comparison))
            for comparison in measured_suite.comparisons()
        ),
        (REPEATABILITY, lambda: generator_repeatability(measured_suite)),
        ("cost of a run", lambda: cost_of_a_run(measured_suite)),
    ]
    for name, check in wanted:
        announce(name)
        try:
            yield check()
        except StoreError:
            raise
        except CepError as error:
            yield Check(name, "problem", (f"could not be checked: {error}",))
