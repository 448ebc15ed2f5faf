"""A process whose store lacks something: `python -m tests.store.starved FOLDER LACK`.

LACK is `system` (handles, rights and a sound disk, one after the other) or `memory`, and FOLDER has
a store `own`; `index`, and FOLDER is a store whose index is damaged; or `room` or `writing`, and
FOLDER is a mount of one or two megabytes. Says one line per fact for the test to compare.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.opening.answers import RecordedStep
from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.errors import CepError, StoreError
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.artifact_files import list_files
from pytest_cepbench.store.maintenance import choose, collect, inspect
from tests.artifacts.files import noise


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

    with Store(folder) as store:
        for left in range(16):
            with without_handles(left):
                tries = [attempt(rows), attempt(lambda: store.index.read("SELECT * FROM results"))]
            outcomes = [outcome(tried).partition(",")[0] for tried in tries]
            if "read" in outcomes:
                break
            say(left, *outcomes)
        with without_handles():
            say("compact:", outcome(attempt(store.index.compact)).partition(",")[0])
        say("saved:", rows(), len(store.index.read("SELECT * FROM results")))


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


def refusal(action: Callable[[], object]) -> str:
    """The kind of StoreError that an action raises, and whether its message names the option."""
    try:
        action()
    except StoreError as error:
        return f"{type(error).__name__} {'--cep-store' in str(error)}"
    return "nothing"


def fill_disk(disk: Path) -> None:
    """Fill the disk, look at what was confirmed, make room, go on."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    confirmed: dict[str, str] = {}
    images: list[str] = []
    with Store(disk / "store") as store:

        def until_full() -> None:
            for number in range(100_000):
                key, text = f"key {number}", f"text {number} " * 500
                store.put([StoredResult(key, text)])
                confirmed[key] = text
                images.append(store.put_artifact(ImageArtifact(noise(40, 40, seed=number))))

        say("full:", refusal(until_full))
        large = ImageArtifact(noise(300, 300))
        say("image:", refusal(lambda: store.put_artifact(large)))
        say("half an image:", store.get_artifact(large.digest), store.damage)
        say("big:", refusal(lambda: store.put([StoredResult("big", "x" * 1_000_000)])))
        say("all or none:", store.get(["big"]))
        say("confirmed:", store.get(confirmed) == confirmed, len(confirmed) > 10)
        say("images:", all(store.get_artifact(digest) is not None for digest in images))
        with (disk / "rest").open("wb", buffering=0) as rest:
            try:
                while rest.write(bytes(512)):
                    pass
            except OSError:
                say("nothing left")
        say("a new store:", refusal(lambda: Store(disk / "other").close()))
        (disk / "rest").unlink()
        ballast.unlink()
        say("room again:", store.put([StoredResult("late", "fits")]))
    with Store(disk / "store") as store:
        say("after all:", store.get([*confirmed, "late"]) == {**confirmed, "late": "fits"})
        say("damage:", store.damage)
        whole = choose(store.root, store.index.read, max_size=2**30)
        going = choose(store.root, store.index.read, max_size=whole.kept_bytes * 9 // 10)
        room = os.statvfs(disk)
        ballast.write_bytes(bytes(room.f_bavail * room.f_bsize - 150_000))
        *_, compacted = collect(store, going)
        say("nearly full:", compacted, len(store) == whole.kept - len(going.entries) < whole.kept)


if __name__ == "__main__":
    folder, lack = Path(sys.argv[1]), sys.argv[2]
    kinds = {"index": repair_index, "room": fill_disk}
    if lack in kinds:
        kinds[lack](folder)
    elif lack == "writing":
        say("a new store:", refusal(lambda: Store(folder / "store").close()))
    else:
        main(folder, lack)
