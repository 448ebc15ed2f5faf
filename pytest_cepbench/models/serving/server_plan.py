"""A server as a spec describes it, before it is started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.models.binding import CoveredFiles
from pytest_cepbench.models.serving.engines import HOST, Engine, Program


@dataclass(frozen=True)
class ServerPlan:
    """A server as a spec describes it, before it is started.

    label: of the model, for people ("serve:checkpoints/step-8000").
    engine, program: what serves it.
    folder: of the checkpoint.
    served_name: by which requests ask for it.
    arguments: flags of the engine.
    variables: names of further variables of the environment that it gets.
    devices: as the spec names them; None leaves them to the run.
    device_count: that it needs.
    port: a number, or auto.
    start_timeout: in seconds.
    files: that decide its answers.
    """

    label: str
    engine: Engine
    program: Program
    folder: Path
    served_name: str
    arguments: tuple[str, ...]
    variables: tuple[str, ...]
    devices: str | None
    device_count: int
    port: str
    start_timeout: float
    files: CoveredFiles

    @property
    def digest(self) -> str:
        """Tells servers of a run apart; specs that differ in their requests alone share one."""
        parts = (
            self.program.argv, self.folder, self.arguments, self.variables, self.devices, self.port,
            self.files.fingerprint, os.uname().nodename,
        )  # fmt: skip
        return digest_json([str(part) for part in parts])[:16]

    def argv(self, port: int, key: str | None) -> list[str]:
        """The command that starts the server."""
        model = [self.engine.model_flag] if self.engine.model_flag else []
        argv = [*self.program.argv, *model, str(self.folder), "--host", HOST, "--port", str(port)]
        if self.engine.lists_model:
            argv += ["--served-model-name", self.served_name]
        if key is not None and not self.engine.key_variable:
            argv += ["--api-key", key]
        return [*argv, *self.arguments]
