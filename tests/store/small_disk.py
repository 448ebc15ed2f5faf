"""A store on a disk of its own: `python -m tests.store.small_disk FOLDER WHAT`.

WHAT is full, former, read-only or shared. Run inside a mount of one or two megabytes; says one
line per fact for the test to compare.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.database import INDEX
from tests.artifacts.files import noise
from tests.store.filling import contents
from tests.store.filling import fill as fill_store
from tests.store.test_former_format import FORMER


def say(*words: object) -> None:
    """One line for the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def refusal(action: Callable[[], object]) -> str:
    """The kind of StoreError that an action raises, and whether its message names the option."""
    try:
        action()
    except StoreError as error:
        return f"{type(error).__name__} {'--cep-store' in str(error)}"
    return "nothing"


def fill(disk: Path) -> None:
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


def former(disk: Path) -> None:
    """Open a store of the former format where no room is left to rewrite it, then where some is."""
    folder = disk / "store"
    with Store(folder) as store:
        store.put([StoredResult(f"key {number}", "text " * 2000) for number in range(40)])
    with closing(sqlite3.connect(folder / INDEX)) as connection:
        connection.executescript(FORMER)
    before = contents(folder)
    (disk / "ballast").write_bytes(bytes(1_400_000))
    say("full:", refusal(lambda: Store(folder).close()))
    say("as it was:", contents(folder)[INDEX] == before[INDEX])
    (disk / "ballast").unlink()
    with Store(folder) as store:
        say("room again:", len(store), store.damage)


def read_only(disk: Path) -> None:
    """Make a store where nothing can be written."""
    say("a new store:", refusal(lambda: Store(disk / "store").close()))


def shared(disk: Path) -> None:
    """Share a live store on a disk that becomes read-only."""
    fill_store(disk / "live", range(2))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with TemporaryDirectory() as own:
        try:
            Store(Path(own), (disk / "live",)).close()
        except StoreError as error:
            say("live:", error)


if __name__ == "__main__":
    kinds = {"full": fill, "former": former, "read-only": read_only, "shared": shared}
    kinds[sys.argv[2]](Path(sys.argv[1]))
