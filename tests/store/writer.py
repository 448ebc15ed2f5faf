"""A process that writes to a store: `python -m tests.store.writer FOLDER NAME COUNT`.

It waits for a line on its input, opens the store, and says on its output what was confirmed:
`own KEY`, `image DIGEST`, or `shared KEY TEXT`, the text that counts under a key that all want.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.store import Store, StoredResult
from tests.artifacts.files import noise


def text_of(name: str, number: int) -> str:
    """What a writer stores; long enough to fill pages, and to be cut in two by a kill."""
    return f"{name} {number} " * 60


def main(folder: Path, name: str, count: int) -> None:
    """Write results, images and shared keys, in turn."""
    say("ready")
    sys.stdin.readline()
    with Store(folder) as store:
        for number in range(count):
            keys = [f"{name}-{number}-{part}" for part in range(3)]
            kept = store.put([StoredResult(key, text_of(key, number)) for key in keys])
            for key in kept:
                say(f"own {key}")
            image = ImageArtifact(noise(seed=abs(hash((name, number))) % 2**32))
            say(f"image {store.put_artifact(image)}")
            shared = f"shared-{number}"
            counts = store.put([StoredResult(shared, f"of-{name}")])[shared]
            say(f"shared {shared} {counts}")


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
