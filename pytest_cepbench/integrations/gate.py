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
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import TimeoutExpired

from filelock import FileLock, Timeout

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations.gate_folder import GateFolder, Submission
from pytest_cepbench.integrations.gate_process import GateProcess, read_output
from pytest_cepbench.integrations.verdict import GatedCase, GateVerdict, Outcome, read_outcome

_ACCEPT_FIRST = ("--snapshot-update", "--cep-accept-insensitive")
"""The first checkpoint of a training may know nothing yet: later ones are held to it."""

_OWN_OPTIONS = (
    "--model", "--cep-model", "--cep-baselines", "--cep-report", "--cep-series",
    "--snapshot-update", "--snapshot-update-new-only", "--cep-plan",
)  # fmt: skip
"""Options that the gate gives itself, or with which pytest would judge nothing."""


@dataclass(frozen=True)
class Gate:
    """Holds the checkpoints of a training to the last one that it accepted.

    folder: for baselines, reports, results, and copies of the accepted checkpoint and of those that
        are to be gated, so that the training may delete or overwrite its own; a new folder for each
        training.
    suites: what pytest runs: suite folders, test files or single tests.
    options: more options of pytest: `("--generator=...", "--cep-samples=8")`.
    model: the model spec; `{checkpoint}` stands for the checkpoint's path.
    series: name of the series for `--cep-series`, which divides the error over the training.
    device: for the gate's process: the value of CUDA_VISIBLE_DEVICES, or `cpu`. Default: all that
        the training sees.
    env: environment variables for the gate's process, beside the training's own.
    timeout: seconds after which a gate is ended and counts as failed. Default: never.
    python: interpreter of the gate's process.
    Raises TrainingGateError for settings that cannot be meant.
    """

    folder: str | Path
    suites: str | Path | Sequence[str | Path]
    options: Sequence[str] = ()
    model: str = "{checkpoint}"
    series: str | None = None
    device: str | None = None
    env: Mapping[str, str | os.PathLike[str]] = field(default_factory=dict)
    timeout: float | None = None
    python: str = sys.executable

    def __post_init__(self) -> None:
        if isinstance(self.options, str):
            raise TrainingGateError(
                f"options={self.options!r} is one string: give a list of options"
            )
        device = "" if self.device is None else self.device
        values = (value for value in self.env.values() if not isinstance(value, os.PathLike))
        for word in (*self.options, *values, device):
            if not isinstance(word, str):
                raise TrainingGateError(f"options, env, device: {word!r} is no string: quote it")
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
        if not self.suite_names:
            raise TrainingGateError(
                "suites is empty: name a suite folder, a test file or a test of one"
            )
        for suite in self.suite_names:
            if not Path(suite.partition("::")[0]).exists():
                raise TrainingGateError(f"suites: there is no {suite.partition('::')[0]}")

    def __call__(self, checkpoint: str | Path, step: int | None = None) -> GateVerdict:
        """Gate a saved checkpoint and wait for the verdict; later ones are held to what passes.

        checkpoint: its folder or file, or another model spec.
        step: of the training.
        Raises TrainingGateError where the gate's process or folder cannot be used.
        """
        left = self.files.load().running
        if left is not None and left.accepting:  # killed while it was accepted: measured again
            with closing(GateRun(self, left)) as run:
                run.wait()
        with closing(GateRun(self, self.submit(checkpoint, step))) as run:
            return run.wait()

    @property
    def files(self) -> GateFolder:
        """The gate's folder."""
        return GateFolder(Path(self.folder))

    @property
    def accepted(self) -> Path | None:
        """The last accepted checkpoint, to be loaded; None before the first.

        Raises TrainingGateError where its files were changed since.
        """
        accepted = self.files.load().accepted
        path = self.files.standing(accepted)
        if accepted is not None and path is None:
            raise TrainingGateError(self.files.changed_since(accepted))
        return path

    def submit(self, checkpoint: str | Path, step: int | None = None) -> Submission:
        """A checkpoint that is to be gated now or later, kept in the folder until then.

        Raises TrainingGateError where it cannot be kept, and for a path with parameters, whose
        files would not be.
        """
        if not str(checkpoint):  # as of a shell's variable that is not set
            raise TrainingGateError("the checkpoint is empty: name a folder, a file or a spec")
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
        return self.files.keep(submission)

    @property
    def suite_names(self) -> list[str]:
        """What pytest runs, by its command line."""
        if isinstance(self.suites, str | Path):
            return [str(self.suites)]
        return [str(suite) for suite in self.suites]


class GateRun:
    """A gate at work on a checkpoint. Its folder is locked until the run is closed.

    gate: its settings.
    submission: the checkpoint.
    Raises TrainingGateError where the folder is in use or the process cannot be started.
    """

    def __init__(self, gate: Gate, submission: Submission) -> None:
        self._gate = gate
        self._files = files = gate.files
        self._begin = time.monotonic()
        self._verdict: GateVerdict | None = None
        self.submission = replace(submission, accepting=False)
        self._lock = FileLock(files.root / ".lock", timeout=0)
        try:
            files.root.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self._first = files.load().accepted is None
            files.change(running=self.submission)
            files.prune()
            self._process = self._measure()
        except Timeout as error:
            raise TrainingGateError(
                f"another process gates into {files.root}: give each training a folder of its own"
            ) from error
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise TrainingGateError(f"the gate's folder cannot be used: {error}") from error
            raise

    def poll(self) -> GateVerdict | None:
        """The verdict, None while there is none. Raises TrainingGateError."""
        if self._verdict is None and (code := self._process.poll()) is not None:
            self._verdict = self._judge(code)
        elif self._verdict is None and self._left() == 0:
            self._process.end()
            words = f"the gate took longer than its {self._gate.timeout:g} s and was ended"
            self._verdict = self._conclude(Outcome.FAILED, (), words, 1)
        return self._verdict

    def wait(self) -> GateVerdict:
        """The verdict, waited for. Raises TrainingGateError."""
        while (verdict := self.poll()) is None:
            with suppress(TimeoutExpired):
                self._process.wait(self._left())
        return verdict

    def close(self) -> None:
        """Let go of the folder; end the process, where it still runs.

        A checkpoint without a verdict is gated again by the next process of its training.
        """
        self._process.end()
        self._lock.release()

    def _left(self) -> float | None:
        """Seconds until the time is over, at least 0; None where there is no limit."""
        timeout = self._gate.timeout
        return None if timeout is None else max(0.0, timeout - (time.monotonic() - self._begin))

    def _measure(self) -> GateProcess:
        """Start the command that measures the checkpoint, as an engineer would type it."""
        gate, files, name = self._gate, self._files, self.submission.name
        report = files.report(name)
        for suffix in (".json", ".html", ".md"):
            report.with_suffix(suffix).unlink(missing_ok=True)
        files.log(name).unlink(missing_ok=True)
        baselines, last = files.baselines, [*_ACCEPT_FIRST]
        if not self._first:
            # A --snapshot-update of an ini file would accept what has not passed.
            files.copy_baselines()
            baselines, last = files.compared, []
        return self._start(
            *(gate.python, "-m", "pytest", "-p", "pytest_cepbench.integrations.gate_process"),
            *gate.suite_names,
            f"--model={gate.model.replace('{checkpoint}', files.path(self.submission))}",
            f"--cep-report={report}",
            *([] if gate.series is None else [f"--cep-series={gate.series}"]),
            *gate.options,
            f"--cep-baselines={baselines}",
            *last,
        )

    def _start(self, *command: str) -> GateProcess:
        env = {}
        if "CEPBENCH_STORE" not in os.environ:
            env["CEPBENCH_STORE"] = str(self._files.root / "store")
        if self._gate.device is not None:
            env["CUDA_VISIBLE_DEVICES"] = "" if self._gate.device == "cpu" else self._gate.device
        log = self._files.log(self.submission.name)
        return GateProcess(command, log, {**env, **self._gate.env})

    def _judge(self, code: int) -> GateVerdict:
        """The verdict of what pytest measured, which is accepted where it passed.

        Only files that stayed the same since before it can be accepted.
        """
        files, name = self._files, self.submission.name
        outcome, cases, reason = read_outcome(code, files.report(name), first=self._first)
        if outcome is not Outcome.ACCEPTED:
            return self._conclude(outcome, cases, reason, code)
        unchanged = files.unchanged(self.submission)
        if unchanged is None:
            reason = f"{files.path(self.submission)} was written to while it was gated"
            return self._conclude(Outcome.FAILED, cases, reason, code)
        self.submission = unchanged
        if not self._first:  # the first baselines stay as the anchors
            files.change(running=replace(unchanged, accepting=True))
            self._process = self._start(
                *(self._gate.python, "-m", "pytest_cepbench.cli", "accept"),
                *(f"{files.report(name)}", f"--baselines={files.baselines}"),
                f"--reason={name} passed the gate of its training",
                "--accept-insensitive",
            )
            with suppress(TimeoutExpired):
                self._process.wait(self._left())
            self._process.end()
            if self._process.returncode != 0:
                outcome, code = Outcome.FAILED, self._process.returncode
                reason = "it passed, and what it measured could not be accepted"
        return self._conclude(outcome, cases, reason, code)

    def _conclude(
        self, outcome: Outcome, cases: tuple[GatedCase, ...], reason: str, code: int
    ) -> GateVerdict:
        """Write down what becomes of the checkpoint. reason: why, where the log does not say it."""
        submission, files, failed = self.submission, self._files, outcome is Outcome.FAILED
        accepted = submission if outcome is Outcome.ACCEPTED else files.load().accepted
        # What failed is not known to be bad: the next process of this training gates it again.
        files.change(accepted=accepted, running=submission if failed else None)
        lines = [reason] if reason else []
        if accepted is not None and files.standing(accepted) is None:
            lines.append(files.changed_since(accepted))
        output = read_output(files.log(submission.name))
        return GateVerdict(
            checkpoint=Path(submission.given),
            step=submission.step,
            outcome=outcome,
            code=code or int(failed),
            cases=cases,
            accepted=files.standing(accepted),
            report=files.report(submission.name).with_suffix(".html"),
            output=output + "".join(f"{line}\n" for line in lines),
            seconds=time.monotonic() - self._begin,
        )
