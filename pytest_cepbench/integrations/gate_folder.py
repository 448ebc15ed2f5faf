"""The folder of a gate: what it accepted, what it is at, and the checkpoints that it keeps.

A training may be killed at any moment, and saves over its own files. So the state is one JSON file
that is replaced whole, and a checkpoint is kept as a copy under a name that holds the digest of its
files: no copy ever takes the place of another, and only the state says which one is accepted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.files import FileStamp, open_regular, parse_json, read_text, sha256_of

_FORMAT = 3
"""Version of the state file."""

_SERIES = "series"
"""The folder of the records of series, in a folder of baselines."""

_FICLONE = 0x40049409  # <linux/fs.h>; a number that the file system does not know is an OSError

Files = Mapping[str, tuple[str, str]]
"""Path of each file within a checkpoint -> its `FileStamp`, empty where that is not settled so that
the file is read again, and its SHA-256."""


@dataclass(frozen=True)
class Submission:
    """A checkpoint that is to be gated, or that was accepted.

    given: its path or model spec, as the training gave it.
    name: of its reports, log and kept copy.
    step: of the training, None where it was not given.
    local: whether it is a folder or a file of this machine, and not another model spec.
    kept: path within `checkpoints` of the gate's folder that the gate loads: the copy's folder, or
        the only file in it. Empty of a model spec, and the gate loads what was given.
    files: of the copy, as they were when it was made.
    accepting: whether it passed and was being accepted, which a kill may have cut off.
    """

    given: str
    name: str
    step: int | None
    local: bool = False
    kept: str = ""
    files: Files = field(default_factory=dict)
    accepting: bool = False


@dataclass(frozen=True)
class GateState:
    """What a gate knows between two processes of its training.

    accepted: the last accepted checkpoint.
    running: the checkpoint that is being gated.
    waiting: checkpoints that are to be gated after it.
    stopped: the checkpoint that stopped the training.
    """

    accepted: Submission | None = None
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

    def report(self, name: str) -> Path:
        """The JSON report of a checkpoint; the HTML page and the summary lie beside it."""
        return self.root / "reports" / f"{name}.json"

    def log(self, name: str) -> Path:
        """What the gate of a checkpoint printed."""
        return self.root / "logs" / f"{name}.log"

    def kept(self, name: str) -> Path:
        """What is kept under a name."""
        return self.root / "checkpoints" / name

    def path(self, checkpoint: Submission) -> str:
        """The path or model spec that is loaded for a checkpoint."""
        # Its copy also where the folder was moved since.
        return str(self.kept(checkpoint.kept)) if checkpoint.kept else checkpoint.given

    def load(self) -> GateState:
        """The state; an empty one in a new folder.

        Raises TrainingGateError for a state that cannot be read, and for baselines without one.
        """
        path = self.root / "state.json"
        try:
            document = parse_json(read_text(path))
            if document["format"] != _FORMAT:
                raise TrainingGateError(
                    f"{path} has format {document['format']}, and {_FORMAT} is expected: give the "
                    "training a new folder for its gate"
                )
            entries = {each.name: document[each.name] for each in fields(GateState)}
            return msgspec.convert(entries, GateState)
        except FileNotFoundError:
            if not any(self.baselines.rglob("*.toml")):
                return GateState()
            accepted = ""
            with suppress(OSError, ValueError):
                accepted = f", {read_text(self.root / 'accepted')}"
            raise TrainingGateError(
                f"{self.baselines} has baselines, and there is no {path} that says of which "
                "checkpoint: the next one would be accepted without a comparison. Bring the file "
                f"back; or `rm -r {self.baselines}` and gate a checkpoint that is known to be good "
                f"first (the last accepted one{accepted})"
            ) from None
        except (
            OSError, ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError
        ) as error:  # fmt: skip
            raise TrainingGateError(
                f"{path} cannot be read ({error!r}): give the training a new folder for its gate"
            ) from error

    def change(self, **changes: Any) -> GateState:
        """Write the state with some fields replaced, and return it. Raises TrainingGateError."""
        state = replace(self.load(), **changes)
        self._write("state.json", json.dumps({"format": _FORMAT, **asdict(state)}, indent=1))
        # For the shell: pytest suites --model="$(cat FOLDER/accepted)". Looked at each time, since
        # the process before may have been killed between the state and this.
        if state.accepted is None or self.standing(state.accepted) is None:
            (self.root / "accepted").unlink(missing_ok=True)
        else:
            self._write("accepted", self.path(state.accepted))
        return state

    def exists(self, submission: Submission) -> bool:
        """Whether a checkpoint is still there to be gated."""
        return not submission.local or Path(self.path(submission)).exists()

    def keep(self, submission: Submission) -> Submission:
        """Copy a checkpoint that the training may delete or overwrite; the same for a model spec.

        Files are clones where the file system has them (Btrfs, XFS), which share their space with
        the training's until either is written to. A hard link would change with the training's.
        Raises TrainingGateError, also where the checkpoint changes meanwhile.
        """
        if not submission.local:
            return submission
        # A link that is turned to another checkpoint meanwhile must not mix the two.
        source = Path(submission.given).resolve()
        partial = self.begin_copy(submission.name)
        try:
            with self._explained(submission.name):
                before = [FileStamp.of(path) for path in _paths(source)]
                if source.is_dir():
                    shutil.copytree(source, partial, copy_function=_copy, dirs_exist_ok=True)
                else:
                    _copy(source, partial / Path(submission.given).name)
                if [FileStamp.of(path) for path in _paths(source)] != before:
                    raise OSError("it changed while it was copied; gate it when it is saved")  # noqa: TRY301 - explained as any other
            return self.end_copy(submission, single=not source.is_dir())
        except BaseException:  # half a copy on a full disk is in the way of the training
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def begin_copy(self, name: str) -> Path:
        """A new, empty folder for the files of a checkpoint. Raises TrainingGateError."""
        partial = self.kept(f".{name}.new")
        with self._explained(name):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        return partial

    def end_copy(self, submission: Submission, *, single: bool = False) -> Submission:
        """Have what was written into the new folder be a kept checkpoint, whole or not at all.

        submission: one that has no path yet gets that of the kept checkpoint.
        single: whether the checkpoint is the only file of the folder, and not the folder.
        Raises TrainingGateError.
        """
        partial = self.kept(f".{submission.name}.new")
        with self._explained(submission.name):
            files = _read_files(partial)
            if not files:
                raise OSError(
                    "it has no file; `save` has to return when it has written all of them"
                )
            name = f"{submission.name}-{_digest(files)[:12]}"
            kept = self.kept(name)
            there = _read_files(kept)
            if there and _digest(there) == _digest(files):  # the same once more
                files = there
                shutil.rmtree(partial)
            else:
                shutil.rmtree(kept, ignore_errors=True)  # left over, or damaged
                partial.rename(kept)
        if single:
            name = f"{name}/{Path(submission.given).name}"
        given = submission.given or str(kept)
        return replace(submission, given=given, local=True, kept=name, files=files)

    def unchanged(self, checkpoint: Submission) -> Submission | None:
        """A checkpoint with its files' stamps of now; None where its files are others.

        Files are read again only where their stamps moved, or cannot be trusted.
        """
        if not checkpoint.files:
            return checkpoint
        # Its folder, also where it is loaded by the only file in it.
        place = self.kept(checkpoint.kept.partition("/")[0])
        try:
            files = _read_files(place, checkpoint.files)
        except OSError:
            return None
        same = _digest(files) == _digest(checkpoint.files)
        return replace(checkpoint, files=files) if same else None

    def standing(self, checkpoint: Submission | None) -> Path | None:
        """Where an accepted checkpoint can be loaded from.

        None where there is none, or its files are not the ones that passed.
        """
        if checkpoint is None or self.unchanged(checkpoint) is None:
            return None
        return Path(self.path(checkpoint))

    def changed_since(self, checkpoint: Submission) -> str:
        """What is wrong with an accepted checkpoint whose files are others."""
        return (
            f"{self.path(checkpoint)} was changed since it was accepted: the training saved over "
            "it, or its files were removed"
        )

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
        """Delete the copies of checkpoints that no part of the state names."""
        state = self.load()
        named = (state.accepted, state.running, state.stopped, *state.waiting)
        needed = {each.kept.partition("/")[0] for each in named if each is not None}
        with suppress(FileNotFoundError):
            for path in self.kept("").iterdir():
                if path.name not in needed:
                    shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Of many files that a full disk does not take, the first says why.
            words = error.args[0][0][2] if isinstance(error, shutil.Error) else error
            raise TrainingGateError(
                f"the checkpoint {name} cannot be kept in {self.kept('')}: {words}"
            ) from error

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
            raise TrainingGateError(f"{path} cannot be written: {error}") from error


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file, and have it on the disk before the state names it."""
    with open_regular(Path(source)) as old, Path(target).open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:  # another file system, or one without clones
            shutil.copyfileobj(old, new, 2**20)
            new.flush()
        os.fsync(new.fileno())
    shutil.copystat(source, target)


def _paths(place: Path) -> list[Path]:
    """The files of a checkpoint, which may be one."""
    if not place.is_dir():
        return [place] if place.exists() else []
    return sorted(
        Path(folder, name)
        for folder, _, names in os.walk(place, followlinks=True)
        for name in names
    )


def _read_files(place: Path, known: Files | None = None) -> Files:
    """The files of a checkpoint; none where there is nothing. Raises OSError.

    known: of an earlier look; what has the same stamp is not read again.
    """
    files: dict[str, tuple[str, str]] = {}
    for path in _paths(place):
        name, stamp = str(path.relative_to(place)), FileStamp.of(path)
        before, digest = (known or {}).get(name, ("", ""))
        if str(stamp) != before:
            digest = sha256_of(path)
        files[name] = (str(stamp) if stamp.settled else "", digest)
    return files


def _digest(files: Files) -> str:
    """SHA-256 of the names and contents of files."""
    digests = {name: digest for name, (_, digest) in files.items()}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
