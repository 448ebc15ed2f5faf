"""A run as an offline run of Weights & Biases, which `wandb sync` uploads."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_cepbench.errors import WriteError
from pytest_cepbench.report.exports.exported_run import ExportedRun, tracked_values


def export(run: ExportedRun, path: Path) -> list[Path]:
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
