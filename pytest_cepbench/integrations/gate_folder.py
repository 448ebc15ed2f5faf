"""The folder of a gate: what it accepted, what it is at, and the checkpoints that it keeps.

A training may be killed at any moment. Its state is one JSON file that is replaced whole; a
checkpoint is kept by a folder of hard links that is renamed into place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.files import parse_json, read_text

_FORMAT = 1
"""Version of the state file."""

_SERIES = "series"
"""The folder of the records of series, in a folder of baselines."""


@dataclass(frozen=True)
class Submission:
    """A checkpoint that is to be gated.

    given: its path or model spec, as the training gave it.
    name: of its reports, log and kept copy.
    step: of the training, None where it was not given.
    folder: whether it is a folder, and not another model spec.
    kept: whether `checkpoints/NAME` of the gate's folder holds it, and is what the gate loads.
    accepting: whether it passed already, and only has to be accepted.
    """

    given: str
    name: str
    step: int | None
    folder: bool = False
    kept: bool = False
    accepting: bool = False


@dataclass(frozen=True)
class AcceptedCheckpoint:
    """A checkpoint that passed.

    path: where it can be loaded from: its kept copy, or where the training saved it.
    name: as of its submission.
    step: of the training, None where it was not given.
    value: of the headline, None where it could not be measured.
    files: of a kept copy, each with its size in bytes and time of change in ns.
    """

    path: str
    name: str
    step: int | None
    value: float | None
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class GateState:
    """What a gate knows between two processes of its training.

    accepted: the last accepted checkpoint.
    best: the accepted checkpoint with the best headline.
    running: the checkpoint that is being gated.
    waiting: checkpoints that are to be gated after it.
    stopped: the checkpoint that stopped the training.
    """

    accepted: AcceptedCheckpoint | None = None
    best: AcceptedCheckpoint | None = None
    running: Submission | None = None
    waiting: tuple[Submission, ...] = ()
    stopped: Submission | None = None


@dataclass(frozen=True)
class GateFolder:
    """Files of a gate.

    root: the folder; made when the first file is written.
    """

    root: Path

    @property
    def baselines(self) -> Path:
        """Baselines of the last accepted checkpoint, with their anchors."""
        return self.root / "baselines"

    @property
    def compared(self) -> Path:
        """A copy of the baselines, which a run of pytest is given to compare with."""
        return self.root / ".baselines"

    @property
    def store(self) -> Path:
        """Computed results."""
        return self.root / "store"

    @property
    def lock(self) -> Path:
        """Held by the process that gates."""
        return self.root / ".lock"

    def report(self, name: str) -> Path:
        """The JSON report of a checkpoint; the HTML page and the summary lie beside it."""
        return self.root / "reports" / f"{name}.json"

    def log(self, name: str) -> Path:
        """What the gate of a checkpoint printed."""
        return self.root / "logs" / f"{name}.log"

    def kept(self, name: str) -> Path:
        """The kept copy of a checkpoint."""
        return self.root / "checkpoints" / name

    def load(self) -> GateState:
        """The state; an empty one where there is none. Raises TrainingGateError."""
        path = self.root / "state.json"
        try:
            document = parse_json(read_text(path))
            if document["format"] != _FORMAT:
                msg = f"{path} has format {document['format']}, and {_FORMAT} is expected"
                raise TrainingGateError(msg)
            return _state(document)
        except FileNotFoundError:
            return GateState()
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"{path} cannot be read ({error!r}): give the training a new folder for its gate"
            raise TrainingGateError(msg) from error

    def change(self, **fields: Any) -> GateState:
        """Write the state with some fields replaced, and return it. Raises TrainingGateError."""
        state = replace(self.load(), **fields)
        self._write("state.json", json.dumps({"format": _FORMAT, **asdict(state)}, indent=1))
        # For the shell: pytest suites --model="$(cat FOLDER/accepted)".
        for name in ("accepted", "best"):
            checkpoint = getattr(state, name)
            if name in fields and checkpoint is not None:
                self._write(name, checkpoint.path)
        return state

    def exists(self, submission: Submission) -> bool:
        """Whether a checkpoint is still there to be gated."""
        path = self.kept(submission.name) if submission.kept else Path(submission.given)
        return not submission.folder or path.is_dir()

    def keep(self, submission: Submission) -> Submission:
        """Keep a checkpoint that the training may delete or overwrite; the same for a model spec.

        Files are hard links where the file system allows it, and copies elsewhere.
        Raises TrainingGateError.
        """
        if not submission.folder:
            return submission
        with self._explained(submission.name):
            partial = self.begin_copy(submission.name)
            shutil.copytree(
                submission.given, partial, copy_function=_link_or_copy, dirs_exist_ok=True
            )
        return self.end_copy(submission)

    def begin_copy(self, name: str) -> Path:
        """A new, empty folder for the files of a checkpoint. Raises TrainingGateError."""
        partial = self.kept(f".{name}.new")
        with self._explained(name):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        return partial

    def end_copy(self, submission: Submission) -> Submission:
        """Have what was written into the new folder be the kept checkpoint, whole or not at all.

        submission: one that has no path yet gets that of the kept checkpoint.
        Raises TrainingGateError.
        """
        kept = self.kept(submission.name)
        partial, old = (kept.with_name(f".{kept.name}.{suffix}") for suffix in ("new", "old"))
        with self._explained(submission.name):
            shutil.rmtree(old, ignore_errors=True)
            if kept.exists():
                kept.rename(old)
            partial.rename(kept)
        shutil.rmtree(old, ignore_errors=True)
        return replace(submission, given=submission.given or str(kept), folder=True, kept=True)

    def copy_baselines(self) -> None:
        """Copy the baselines, so that only their acceptance changes them. Raises OSError.

        The records of series are not copied: what a gate spends of its series' error stays spent.
        """
        if self.compared.exists():
            shutil.rmtree(self.compared)
        records = self.baselines / _SERIES
        shutil.copytree(
            self.baselines,
            self.compared,
            ignore=lambda folder, _: [_SERIES] if Path(folder) == self.baselines else [],
        )
        records.mkdir(exist_ok=True)
        (self.compared / _SERIES).symlink_to(records.resolve(), target_is_directory=True)

    def prune(self) -> None:
        """Delete the kept copies of checkpoints that no part of the state names."""
        state = self.load()
        named = (state.accepted, state.best, state.running, state.stopped, *state.waiting)
        needed = {each.name for each in named if each is not None}
        with suppress(FileNotFoundError):
            for path in self.kept("").iterdir():
                if path.name not in needed:
                    shutil.rmtree(path, ignore_errors=True)

    def files(self, name: str) -> dict[str, tuple[int, int]]:
        """Size and time of change of each file of a kept checkpoint; empty if there is none."""
        root = self.kept(name)
        return {
            str(path.relative_to(root)): (status.st_size, status.st_mtime_ns)
            for path in sorted(root.rglob("*"))
            if path.is_file()
            for status in [path.stat()]
        }

    def checked(self, checkpoint: AcceptedCheckpoint | None) -> Path | None:
        """Where an accepted checkpoint can be loaded from.

        Raises TrainingGateError where its kept files are not the ones that passed: a training that
        saves over a checkpoint changes the hard links to it too.
        """
        if checkpoint is None:
            return None
        if checkpoint.files and {k: tuple(v) for k, v in checkpoint.files.items()} != self.files(
            checkpoint.name
        ):
            msg = (
                f"{checkpoint.path} was changed since it was accepted: the training saved over "
                "it, or its files were removed"
            )
            raise TrainingGateError(msg)
        return Path(checkpoint.path)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, shutil.Error) as error:
            msg = f"the checkpoint {name} cannot be kept in {self.kept('')}: {error}"
            raise TrainingGateError(msg) from error

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        new = path.with_name(f".{name}.new")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with new.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError as error:
            msg = f"{path} cannot be written: {error}"
            raise TrainingGateError(msg) from error


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(os.path.realpath(source), target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def _state(document: Mapping[str, Any]) -> GateState:
    def submission(entry: Mapping[str, Any] | None) -> Submission | None:
        return None if entry is None else Submission(**entry)

    def accepted(entry: Mapping[str, Any] | None) -> AcceptedCheckpoint | None:
        return None if entry is None else AcceptedCheckpoint(**entry)

    return GateState(
        accepted=accepted(document["accepted"]),
        best=accepted(document["best"]),
        running=submission(document["running"]),
        waiting=tuple(Submission(**entry) for entry in document["waiting"]),
        stopped=submission(document["stopped"]),
    )
