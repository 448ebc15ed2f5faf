"""The doctor: a suite measured under a few seeds and checked before anything is gated with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.chains import total
from pytest_cepbench.errors import CepError, StoreError
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import Announce, PreparedCalibration, calibrate
from pytest_cepbench.studies.doctor.diagnosis import (
    Check,
    CheckTable,
    Diagnosis,
    MeasuredSuite,
    Status,
)
from pytest_cepbench.studies.doctor.measurement_checks import (
    CONSTANT_OUTPUTS,
    COST,
    DUPLICATES,
    chance_floors,
    constant_outputs,
    cost_of_a_run,
    duplicates,
    measurability,
    visible_drops,
)
from pytest_cepbench.studies.doctor.model_checks import (
    REPEATABILITY,
    encoder_sensitivity,
    generator_repeatability,
    sensitivity_name,
)
from pytest_cepbench.studies.prepared_study import studied_models
from pytest_cepbench.studies.study_data import StudyUsage
from pytest_cepbench.suites import ModelPool
from pytest_cepbench.suites.chain_run import require_chains

__all__ = ["Check", "CheckTable", "Diagnosis", "Status", "examine"]


def examine(
    prepared: PreparedCalibration, model_pool: ModelPool, baselines: Path, announce: Announce
) -> Diagnosis:
    """Measure the suite under its seeds, and check it; nothing is gated.

    baselines: folder of accepted ones, which may hold the noise of a case.
    announce: is given a line for each part.
    Raises StoreError, which concerns all checks.
    """
    calibrations = calibrate(prepared, model_pool, announce)
    own = prepared.own
    run = require_chains(own.run(model_pool), "the doctor")
    with TemporaryDirectory(prefix="cepbench-doctor-") as folder, Store(Path(folder)) as second:
        suite = MeasuredSuite(run, own.cases, tuple(calibrations), model_pool, second)
        checks = [
            measurability(calibrations),
            chance_floors(calibrations),
            visible_drops(calibrations, baselines),
        ]
        # Those that call models or read chains: one that fails says so, and the others go on.
        asked: dict[str, Callable[[], Check]] = {
            CONSTANT_OUTPUTS: partial(constant_outputs, suite),
            DUPLICATES: partial(duplicates, suite),
            **{
                sensitivity_name(comparison): partial(encoder_sensitivity, suite, comparison)
                for comparison in suite.comparisons()
            },
            REPEATABILITY: partial(generator_repeatability, suite),
            COST: partial(cost_of_a_run, suite),
        }
        for name, check in asked.items():
            announce(name)
            try:
                checks.append(check())
            except StoreError:
                raise
            except CepError as error:
                checks.append(Check(name, "problem", (f"could not be checked: {error}",)))
    return Diagnosis(
        suite=own.suite.name,
        version=own.suite.table.version,
        file=str(own.suite.file),
        data={name: str(value) for name, value in own.dataset.identity.items()},
        samples=len(own.dataset.samples),
        seeds=prepared.seeds,
        under_test=own.assignments.under_test,
        model=own.assignments.subject,
        players=tuple(studied_models(own.assignments, model_pool)),
        checks=tuple(checks),
        damage=tuple(model_pool.store.damage),
        effort=StudyUsage.of(total(runner.tally for runner in model_pool.runners.values())),
    )
