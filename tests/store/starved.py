"""A process that cannot read an image: `python -m tests.store.starved FOLDER LACK`.

LACK is `system` (handles, rights and a sound disk, one after the other) or `memory`, and FOLDER has
a store `own`; or it is `index`, and FOLDER is a store whose index is damaged. Says one line per
fact for the test to compare.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_cepbench.datasets.opening.answers import RecordedStep
from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.errors import CepError
from pytest_cepbench.store import Store
from pytest_cepbench.store.artifact_files import list_files
from pytest_cepbench.store.maintenance import inspect


def say(*words: object) -> None:
    """One line for the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


@contextmanager
def without_handles(left: int = 0) -> Iterator[None]:
    """No more than so many files can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for handle in taken[:left]:
            os.close(handle)
        del taken[:left]
        yield
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def without_rights(path: Path) -> Iterator[None]:
    """The process has no right to read a file."""
    mode, user = path.stat().st_mode, os.geteuid()
    path.chmod(0)
    if user == 0:  # who may read any file
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        path.chmod(mode)


@contextmanager
def with_faulty_disk(path: Path) -> Iterator[None]:
    """Reading a file ends in an input/output error, as reading a page that no process has does."""
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to("/proc/self/mem")
    try:
        yield
    finally:
        aside.replace(path)


@contextmanager
def with_memory(mebibytes: int) -> Iterator[None]:
    """Only so much more memory can be had."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + mebibytes * 2**20, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def attempt(action: Callable[[], object]) -> object:
    """What an action returns, or its error."""
    try:
        return action()
    except CepError as error:
        return error


def outcome(result: object) -> str:
    """The error of an attempt; "read" or "lost" where there is none."""
    if isinstance(result, CepError):
        return f"{type(result).__name__}, {str(result).rpartition(': ')[2]}"
    return "lost" if result is None else "read"


def repair_index(folder: Path) -> None:
    """Open a store whose index is damaged with too few handles, and again with enough."""

    def rows() -> int:
        with Store(folder) as store:
            return len(store.index.read("SELECT * FROM results"))

    for left in range(16):
        with without_handles(left):
            opened = outcome(attempt(rows))
        if opened == "read":
            break
        say(left, opened.partition(",")[0])
    say("saved:", rows())


def main(folder: Path, lack: str) -> None:
    """Read images while the system cannot, and again afterwards."""
    path, digest, _ = next(list_files(folder / "own"))
    assert digest is not None
    with Store(folder / "own") as own:
        recorded = RecordedStep("", FileImage(path))
        reads: dict[str, Callable[[], object]] = {
            "own": lambda: own.get_artifact(digest),
            "verify": lambda: inspect(own.root, own.index.read),
            "recorded": recorded.load_image,
        }
        if lack != "memory":
            # Without handles first: these are the first images that Pillow reads in this process.
            for trouble in (without_handles(), without_rights(path), with_faulty_disk(path)):
                with trouble:
                    outcomes = {name: outcome(attempt(read)) for name, read in reads.items()}
                for name, words in outcomes.items():
                    say(f"{name}:", words)
        else:
            for name in ("own", "recorded"):
                seen = set()
                for mebibytes in range(0, 64, 4):
                    with with_memory(mebibytes):
                        result = attempt(reads[name])
                    # Only now: without memory, words about it could not be made either.
                    seen.add(outcome(result).partition(",")[0])
                    del result
                say(f"{name}:", " or ".join(sorted(seen)))
        say("afterwards:", *(outcome(attempt(read)) for read in reads.values()))
        say("damage:", own.damage, inspect(own.root, own.index.read).sound)


if __name__ == "__main__":
    if sys.argv[2] == "index":
        repair_index(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), sys.argv[2])
