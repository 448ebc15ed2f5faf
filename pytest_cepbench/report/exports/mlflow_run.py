"""A run as a run of MLflow: numbers as metrics, texts as tags."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import WriteError
from pytest_cepbench.report.exports.exported_run import ExportedRun, tracked_values

_UNSAFE = re.compile(r"[^\w\-. :/]")
"""What MLflow takes in no name of a metric."""


def export(run: ExportedRun, path: Path) -> list[Path | str]:
    """Write to mlflow.db below the folder; see `report.exports.Export`.

    Where MLFLOW_TRACKING_URI is set, the run goes there, and the folder stays as it is.
    The experiment is that of MLFLOW_EXPERIMENT_NAME, `cepbench` otherwise.
    """
    import mlflow

    remote = os.environ.get("MLFLOW_TRACKING_URI")
    database = path.absolute() / "mlflow.db"
    if not remote:
        path.mkdir(parents=True, exist_ok=True)
    try:
        client = mlflow.MlflowClient(tracking_uri=remote or f"sqlite:///{database}")
        _log(client, run, None if remote else (path.absolute() / "artifacts").as_uri())
    except mlflow.exceptions.MlflowException as error:
        raise WriteError(f"MLflow took no run: {error}") from error
    # The address may hold a password.
    return ["where MLFLOW_TRACKING_URI points"] if remote else [database]


def _log(client: Any, run: ExportedRun, artifacts: str | None) -> None:
    """Log a run. artifacts: address for those of a new experiment; None for the server's own."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "cepbench")
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name, artifacts)
    run_id = client.create_run(experiment, run_name=run.name).info.run_id
    for key, value in tracked_values(run).items():
        if isinstance(value, str):
            client.set_tag(run_id, key, value)
        else:
            client.log_metric(run_id, _UNSAFE.sub("_", key), value, step=run.step)
    client.set_terminated(run_id)
