"""A gate for the checkpoints of one training: each is held to the last one that was accepted.

    gate = Gate("runs/1/gate", "suites/shapes")
    verdict = gate("runs/1/checkpoint-500", step=500)

The gate is the command that an engineer would type, in a process of its own: the training's random
streams, memory and threads are left alone. Everything that it knows lies in its folder, so a
training that is started again goes on from there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations.gate_folder import GateFolder, Submission
from pytest_cepbench.integrations.gate_run import GateCommands, GateRun
from pytest_cepbench.integrations.verdict import GateVerdict

_OWN_OPTIONS = (
    "--model", "--cep-model", "--cep-baselines", "--cep-report", "--cep-series",
    "--snapshot-update", "--snapshot-update-new-only", "--cep-plan",
)  # fmt: skip
"""Options that the gate gives itself, or with which pytest would judge nothing."""


@dataclass(frozen=True)
class Gate:
    """Holds the checkpoints of a training to the last one that it accepted.

    folder: for baselines, reports, results and kept checkpoints; a new one for each training.
    suites: what pytest runs: suite folders, test files or single tests.
    options: more options of pytest: `("--generator=...", "--cep-samples=8")`.
    model: the model spec; `{checkpoint}` stands for the checkpoint's path.
    case: PART/METRIC, or SUITE/PART/METRIC, whose value is the headline: the best checkpoint is
        the one with the best headline. Default: the first case that can fail the run.
    series: name of the series for `--cep-series`, which divides the error over the training.
    device: for the gate's process: the value of CUDA_VISIBLE_DEVICES, or `cpu`. Default: all that
        the training sees.
    env: environment variables for the gate's process, beside the training's own.
    timeout: seconds after which a gate is ended and counts as failed. Default: never.
    keep: whether the folder keeps copies of the accepted and the best checkpoint, and of those that
        are to be gated, so that the training may delete or overwrite its own.
    python: interpreter of the gate's process.
    Raises TrainingGateError for settings that cannot be meant.
    """

    folder: str | Path
    suites: str | Path | Sequence[str | Path]
    options: Sequence[str] = ()
    model: str = "{checkpoint}"
    case: str | None = None
    series: str | None = None
    device: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    keep: bool = True
    python: str = sys.executable

    def __post_init__(self) -> None:
        if isinstance(self.options, str):
            raise TrainingGateError(
                f"options={self.options!r} is one string: give a list of options"
            )
        for option in self.options:
            if (name := option.partition("=")[0]) in _OWN_OPTIONS:
                raise TrainingGateError(f"options: {name} is set by the gate itself; leave it out")
        if "{checkpoint}" not in self.model:
            raise TrainingGateError(
                f"model={self.model!r} does not contain {{checkpoint}}, the checkpoint's path"
            )
        if self.timeout is not None and self.timeout <= 0:
            raise TrainingGateError(
                f"timeout={self.timeout}: a number of seconds above 0 is expected"
            )
        if not self._suites:
            raise TrainingGateError(
                "suites is empty: name a suite folder, a test file or a test of one"
            )
        for suite in self._suites:
            if not Path(suite.partition("::")[0]).exists():
                raise TrainingGateError(f"suites: there is no {suite.partition('::')[0]}")

    def __call__(self, checkpoint: str | Path, step: int | None = None) -> GateVerdict:
        """Gate a saved checkpoint and wait for the verdict; later ones are held to what passes.

        checkpoint: its folder or file, or another model spec.
        step: of the training.
        Raises TrainingGateError where the gate's process or folder cannot be used.
        """
        left = self.files.load().running
        if left is not None and left.accepting:  # killed between the verdict and its acceptance
            self._wait(left)
        return self._wait(self.submit(checkpoint, step))

    def _wait(self, submission: Submission) -> GateVerdict:
        run = self.start(submission)
        try:
            return run.wait()
        finally:
            run.close()

    @property
    def files(self) -> GateFolder:
        """The gate's folder."""
        return GateFolder(Path(self.folder))

    @property
    def accepted(self) -> Path | None:
        """The last accepted checkpoint, to be loaded; None before the first.

        Raises TrainingGateError where its files were changed since.
        """
        return self.files.checked(self.files.load().accepted)

    @property
    def best(self) -> Path | None:
        """The accepted checkpoint with the best headline, as `accepted`."""
        return self.files.checked(self.files.load().best)

    def submit(self, checkpoint: str | Path, step: int | None = None) -> Submission:
        """A checkpoint that is to be gated now or later, kept in the folder until then.

        Raises TrainingGateError where it cannot be kept, and for a path with parameters, whose
        files would not be.
        """
        path = Path(checkpoint)
        folder = os.path.isdir(path)  # noqa: PTH112 - False too for a spec too long for a path
        local = folder or os.path.isfile(path)  # noqa: PTH113 - as above
        plain, mark, parameters = str(checkpoint).partition("?")
        if not local and mark and os.path.exists(plain):  # noqa: PTH110 - as above
            raise TrainingGateError(
                f"{checkpoint} is a path with parameters: give the gate {plain}, and "
                f'model="{{checkpoint}}?{parameters}"'
            )
        if folder and Path(self.folder).resolve().is_relative_to(path.resolve()):
            raise TrainingGateError(
                f"the gate's folder {self.folder} is in the checkpoint {checkpoint}: move it out"
            )
        name = (path.resolve() if folder else path).name
        if step is not None and not re.search(rf"(?<!\d){step}(?!\d)", name):
            name = f"{name}-step{step}"
        submission = Submission(str(checkpoint), name, step, local=local)
        return self.files.keep(submission) if self.keep else submission

    def start(self, submission: Submission, device: str | None = None) -> GateRun:
        """Start to gate a checkpoint without waiting.

        device: goes before the gate's own `device`.
        Raises TrainingGateError, also where another process gates into the folder.
        """
        commands = GateCommands(
            pytest=tuple(self._pytest(submission)),
            accept=tuple(self._acceptance(submission)),
            env=self._environment(device or self.device),
            timeout=self.timeout,
            case=self.case,
        )
        return GateRun(self.files, submission, commands)

    @property
    def _suites(self) -> list[str]:
        if isinstance(self.suites, str | Path):
            return [str(self.suites)]
        return [str(suite) for suite in self.suites]

    def _pytest(self, submission: Submission) -> list[str]:
        """Pytest, as an engineer would start it."""
        files = self.files
        checkpoint = files.path(submission)
        return [
            *(self.python, "-m", "pytest", "-p", "pytest_cepbench.integrations.parent_death"),
            *self._suites,
            f"--model={self.model.replace('{checkpoint}', checkpoint)}",
            f"--cep-report={files.report(submission.name)}",
            *([] if self.series is None else [f"--cep-series={self.series}"]),
            *self.options,
        ]

    def _acceptance(self, submission: Submission) -> list[str]:
        """The command that makes a report the new baseline; the first one stays as the anchor."""
        files = self.files
        return [
            *(self.python, "-m", "pytest_cepbench.cli", "accept"),
            *(f"{files.report(submission.name)}", f"--baselines={files.baselines}"),
            f"--reason={submission.name} passed the gate of its training",
            "--accept-insensitive",
        ]

    def _environment(self, device: str | None) -> dict[str, str]:
        env = {} if "CEPBENCH_STORE" in os.environ else {"CEPBENCH_STORE": f"{self.files.store}"}
        if device is not None:
            env["CUDA_VISIBLE_DEVICES"] = "" if device == "cpu" else device
        return {**env, **self.env}
