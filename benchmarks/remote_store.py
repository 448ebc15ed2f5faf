r"""A shared store of objects against a local layer: what reading and writing a run's results costs.

    python -m benchmarks.remote_store

The results of a run over 1,284 samples of one iteration: for each a description, a drawing, and two
vectors of 768 numbers. One side publishes them into a shared store, another reads all of them, 64
samples of a step at a time as a run does, with an empty store of its own. The shared stores are a
folder of a local store (`--cep-shared DIR`, the side that the others are held against), objects in
a folder, objects behind a line that takes 30 ms for every answer, and a server that speaks S3 on
this machine, whose own work on the same cores counts in. Images are fetched in the same parts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.store import ImageRef, Store, StoredResult
from pytest_cepbench.store.remote.remotes import Location
from tests.store.filling import key_of
from tests.store.remote.buckets import BUCKET, serving
from tests.store.remote.slow import SlowFileSystem

_SHARD = 64

_PROVENANCE = {"device": "cuda:0", "batch": "32", "model": "0123456789abcdef"}

_STEPS = ("text", "image", "vector 0", "vector 1")


def drawing(sample: int) -> ImageArtifact:
    """An image of its own, that compresses somewhat."""
    rng = np.random.default_rng(sample)
    pixels = np.repeat(np.repeat(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8), 4, 0), 4, 1)
    return ImageArtifact(pixels)


def compute(store: Store, samples: int) -> float:
    """Put everything, in shards and steps; seconds until the store has it, uploads included."""
    images = [drawing(sample) for sample in range(samples)]
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    for start in range(0, samples, _SHARD):
        shard = range(start, min(start + _SHARD, samples))
        for step in _STEPS:
            entries = []
            for sample in shard:
                key = key_of(f"{step} {sample}")
                if step == "text":
                    result: Any = f"sample {sample}: a small red circle beside a blue square " * 4
                elif step == "image":
                    result = ImageRef(store.put_image(images[sample]))
                else:
                    result = rng.random(768, dtype=np.float32)
                entries.append(StoredResult(key, result, _PROVENANCE))
            store.put(entries)
    store.flush()
    return time.perf_counter() - started


def read(store: Store, samples: int) -> tuple[float, float]:
    """(seconds for all results, seconds for all images)."""
    started = time.perf_counter()
    for start in range(0, samples, _SHARD):
        shard = range(start, min(start + _SHARD, samples))
        for step in _STEPS:
            stored = store.get(key_of(f"{step} {sample}") for sample in shard)
            assert len(stored) == len(shard), f"{len(stored)} of {len(shard)}"
    results = time.perf_counter() - started
    digests = [drawing(sample).digest for sample in range(samples)]
    started = time.perf_counter()
    with ThreadPoolExecutor(8) as threads:  # as inputs are read ahead of a model
        assert all(image is not None for image in threads.map(store.get_image, digests))
    return results, time.perf_counter() - started


@contextmanager
def local_layer(home: Path, samples: int) -> Iterator[tuple[float, Location]]:
    """The folder of another run's store."""
    with Store(home / "made") as store:
        seconds = compute(store, samples)
    yield seconds, home / "made"


def published(place: Callable[[Path], Location]) -> Callable[[Path, int], Any]:
    """A shared store of objects."""

    @contextmanager
    def made(home: Path, samples: int) -> Iterator[tuple[float, Location]]:
        where = place(home)
        with Store(home / "made", publish=where) as store:
            seconds = compute(store, samples)
        assert store.remarks == []
        yield seconds, where

    return made


def main() -> None:
    """Measure in turns, and print a table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=1284)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.03, help="of the slow line, in seconds")
    options = parser.parse_args()
    count = 0

    def prefix(start: str) -> Callable[[Path], Location]:
        def place(_: Path) -> Location:
            nonlocal count
            count += 1
            return f"{start}/{count}"

        return place

    sides: dict[str, Callable[[Path, int], Any]] = {
        "local layer": local_layer,
        "objects in a folder": published(lambda home: home / "objects"),
        f"objects, {options.delay * 1000:.0f} ms away": published(prefix("slow://lib")),
        "S3 server on this machine": published(prefix(f"s3://{BUCKET}")),
    }
    seconds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with serving() as server:
        os.environ.update(server.environment())
        for _ in range(options.runs):
            for name, side in sides.items():
                SlowFileSystem.delay = options.delay
                with tempfile.TemporaryDirectory() as folder:
                    home = Path(folder)
                    with (
                        side(home, options.samples) as (written, place),
                        Store(home / "own", (place,)) as store,
                    ):
                        results, images = read(store, options.samples)
                seconds[name].append((written, results, images))
                SlowFileSystem.reset()
    print(f"{options.samples:,} samples, ms for each\n")
    print("| shared store | write | to local | read results | to local | images | to local |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in seconds.items()
    }
    base = medians["local layer"]
    for name, row in medians.items():
        cells = (
            f"{1000 * s / options.samples:.2f} | {s / local:.1f}"
            for s, local in zip(row, base, strict=True)
        )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
