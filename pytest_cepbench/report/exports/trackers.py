"""Runs of experiment trackers: Weights & Biases, MLflow and TensorBoard."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import WriteError
from pytest_cepbench.report.exports.rows import ExportedRun, tracked_values


def export_wandb(run: ExportedRun, path: Path) -> list[Path]:
    """Write below the folder; see `report.exports.Export`. Nothing is sent anywhere.

    The project is that of WANDB_PROJECT, `cepbench` otherwise.
    """
    import wandb

    path.mkdir(parents=True, exist_ok=True)
    try:
        with wandb.init(
            mode="offline",
            dir=str(path),
            project=os.environ.get("WANDB_PROJECT", "cepbench"),
            name=run.name,
            settings=wandb.Settings(silent=True, console="off"),
        ) as tracked:
            tracked.define_metric("cepbench/*", step_metric="cepbench/step")
            tracked.log({**tracked_values(run), "cepbench/step": run.step})
            file = Path(tracked.settings.sync_file)
        # The end of a run does not wait until W&B's own process has written its file; its end does.
        wandb.teardown()
    except wandb.Error as error:
        raise WriteError(f"W&B took no run: {error}") from error
    return [file.parent]


_NOT_IN_MLFLOW = re.compile(r"[^\w\-. :/]")
"""What MLflow takes in no name of a metric."""


def export_mlflow(run: ExportedRun, path: Path) -> list[Path | str]:
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
            client.log_metric(run_id, _NOT_IN_MLFLOW.sub("_", key), value, step=run.step)
    client.set_terminated(run_id)


def export_tensorboard(run: ExportedRun, path: Path) -> list[Path]:
    """Write an event file into the folder, without TensorFlow or torch; see `Export`."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    path.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(path))
    try:
        for name, value in tracked_values(run).items():
            if isinstance(value, str):
                # As torch's SummaryWriter names and stores a text.
                entry = Summary.Value(
                    tag=f"{name}/text_summary",
                    metadata=create_summary_metadata(display_name="", description=""),
                    tensor=make_tensor_proto([value.encode("utf-8", "replace")]),
                )
            else:
                entry = Summary.Value(tag=name, simple_value=value)
            writer.add_event(
                Event(wall_time=time.time(), step=run.step, summary=Summary(value=[entry]))
            )
    finally:
        writer.close()
    return [path]
