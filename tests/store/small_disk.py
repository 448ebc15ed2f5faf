"""A store on a disk of its own: `python -m tests.store.small_disk FOLDER WHAT`.

WHAT is full or read-only. Run inside a mount of one or two megabytes; says one
line per fact for the test to compare.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import Store, StoredResult
from tests.artifacts.files import noise


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


def read_only(disk: Path) -> None:
    """Make a store where nothing can be written."""
    say("a new store:", refusal(lambda: Store(disk / "store").close()))


if __name__ == "__main__":
    kinds = {"full": fill, "read-only": read_only}
    kinds[sys.argv[2]](Path(sys.argv[1]))
