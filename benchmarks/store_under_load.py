r"""The store under load: eight processes at once, and processes that are killed at random moments.

    python -m benchmarks.store_under_load

First, 100,000 results are written by one process and by eight, in turns; each process reads back
what it and others have written, and all want some keys for themselves. Afterwards every result must
be there, be what was put, and be the same for all. The ratio of the medians says what eight
processes cost or gain on this machine's cores.

Then a writer says what the store has confirmed to it, and is killed with SIGKILL at a random
moment, 200 times, on the same store. Whatever was confirmed before must be there, undamaged.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.store import Result, Store, StoredResult

_BATCH = 32
_CONTENDED = 10  # one batch of so many is wanted by every process
_LONGEST_LIFE = 0.12  # seconds from a writer's beginning until it is killed, at most
_CONTEXT = get_context("forkserver")
_PROVENANCE = {"device": "cpu", "batch": "32", "model": "0123456789abcdef"}


def key_of(name: str) -> str:
    """A key as chains have them."""
    return sha256(name.encode()).hexdigest()


def result_of(name: str) -> Result:
    """What belongs under it: a description, or a vector of 512 numbers."""
    seed = int(sha256(name.encode()).hexdigest()[:8], 16)
    if seed % 2:
        return np.random.default_rng(seed).random(512, dtype=np.float32)
    return f"{name}: a small red circle to the left of a large blue square " * 3


def names_of(worker: int, start: int) -> list[str]:
    """Names of the results of one batch: the worker's own, or those that every worker wants."""
    contended = start // _BATCH % _CONTENDED == 0
    owner = "all" if contended else f"worker {worker}"
    return [f"{owner} number {start + i}" for i in range(_BATCH)]


def same(first: Result, second: Result) -> bool:
    """Equal in every bit."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return bool(np.array_equal(first, second))
    return type(first) is type(second) and first == second


# -- many processes --------------------------------------------------------------------------------


def work(folder: Path, worker: int, workers: int, each: int, line: Connection) -> None:
    """Write and read; says "ready", waits for its word, and says how many results were wrong."""
    moments = random.Random(worker)
    with Store(folder) as store:
        line.send("ready")
        line.recv()
        wrong = 0
        for start in range(0, each, _BATCH):
            names = names_of(worker, start)
            kept = store.put([StoredResult(key_of(n), result_of(n), _PROVENANCE) for n in names])
            wrong += sum(not same(kept[key_of(name)], result_of(name)) for name in names)
            other = names_of(
                moments.randrange(workers), moments.randrange(start + 1) // _BATCH * _BATCH
            )
            stored = store.get(key_of(name) for name in other)
            wrong += sum(
                not same(stored[key_of(name)], result_of(name))
                for name in other
                if key_of(name) in stored
            )
        line.send(wrong)


def together(folder: Path, workers: int, entries: int) -> float:
    """Seconds that some processes need for all entries. Raises AssertionError where one is lost."""
    each = -(-entries // workers // _BATCH) * _BATCH
    lines, processes = [], []
    for worker in range(workers):
        here, there = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=work, args=(folder, worker, workers, each, there))
        process.start()
        lines.append(here)
        processes.append(process)
    for line in lines:
        assert line.recv() == "ready"
    started = time.perf_counter()
    for line in lines:
        line.send("go")
    wrong = sum(line.recv() for line in lines)
    seconds = time.perf_counter() - started
    for process in processes:
        process.join()
    assert wrong == 0, f"{wrong} results are not what was put"
    check(folder, workers, each)
    return seconds


def check(folder: Path, workers: int, each: int) -> None:
    """Every result of every process is there."""
    with Store(folder) as store:
        names = {
            name
            for worker in range(workers)
            for start in range(0, each, _BATCH)
            for name in names_of(worker, start)
        }
        stored = store.get(key_of(name) for name in names)
        lost = [name for name in names if not same(stored.get(key_of(name), ""), result_of(name))]
        assert not lost, f"{len(lost)} of {len(names)} results are lost, such as {lost[0]!r}"
        assert len(store) == len(names)
        assert store.damage == []


# -- killed processes ------------------------------------------------------------------------------


def write_for_ever(folder: Path, life: int, out: Connection) -> None:
    """Say that it begins; write results and images, and say which the store has confirmed."""
    os.write(out.fileno(), b"begin\n")
    with Store(folder) as store:
        for number in range(10**9):
            names = [f"life {life} number {number} part {part}" for part in range(4)]
            store.put([StoredResult(key_of(name), result_of(name), _PROVENANCE) for name in names])
            os.write(out.fileno(), "".join(f"result {name}\n" for name in names).encode())
            if number % 8 == 0:
                digest = store.put_artifact(picture(life, number))
                os.write(out.fileno(), f"image {digest}\n".encode())


def picture(life: int, number: int) -> ImageArtifact:
    """An image that no other worker writes."""
    noise = np.random.default_rng([life, number])
    return ImageArtifact(noise.integers(0, 255, (24, 24, 3), dtype=np.uint8))


def killed(folder: Path, times: int, seed: int = 0) -> tuple[int, int]:
    """Kill writers; how many results and images had been confirmed to them.

    Raises AssertionError where one of these is lost.
    """
    moments = random.Random(seed)
    results: list[str] = []
    images: list[str] = []
    for life in range(times):
        first = b"begin\n" if life % 2 else b"image "
        with lines_of(folder, life, first, moments.random() * _LONGEST_LIFE) as lines:
            words = [line.partition(" ") for line in lines]
        results += [name for kind, _, name in words if kind == "result"]
        images += [name for kind, _, name in words if kind == "image"]
    with Store(folder) as store:
        stored = store.get(key_of(name) for name in results)
        lost = [name for name in results if not same(stored.get(key_of(name), ""), result_of(name))]
        assert not lost, f"{len(lost)} confirmed results are lost, such as {lost[0]!r}"
        gone = [digest for digest in images if store.get_artifact(digest) is None]
        assert not gone, f"{len(gone)} confirmed images are lost"
        assert store.damage == []
    return len(results), len(images)


@contextmanager
def lines_of(folder: Path, life: int, first: bytes, seconds: float) -> Iterator[list[str]]:
    """What a writer printed until it was killed; the kill may have cut the last line in two.

    first: its seconds are counted from this word on, so that a busy machine does not end every
        life before it has confirmed an image.
    """
    here, there = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=write_for_ever, args=(folder, life, there))
    process.start()
    there.close()
    output = b""
    while first not in output:
        part = os.read(here.fileno(), 65536)
        assert part, "the writer ended by itself"
        output += part
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if here.poll(left):
            output += os.read(here.fileno(), 65536)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"the writer ended by itself: {process.exitcode}"
    while part := os.read(here.fileno(), 65536):
        output += part
    here.close()
    yield output.decode().split("\n")[:-1]


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kills", type=int, default=200)
    options = parser.parse_args()
    _CONTEXT.set_forkserver_preload(["pytest_cepbench.store"])
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    sides: dict[int, list[float]] = {1: [], options.workers: []}
    for _ in range(options.runs):
        for workers, seconds in sides.items():
            with tempfile.TemporaryDirectory() as folder:
                seconds.append(together(Path(folder), workers, options.entries))
    print("| processes | median s | entries/s | rate to one | lost |\n|---:|---:|---:|---:|---:|")
    alone = statistics.median(sides[1])
    for workers, seconds in sides.items():
        median = statistics.median(seconds)
        rate = f"{options.entries / median:,.0f}"
        print(f"| {workers} | {median:.2f} | {rate} | {alone / median:.2f} | 0 |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        results, images = killed(Path(folder), options.kills)
    print("\n| killed | results confirmed | images confirmed | lost |\n|---:|---:|---:|---:|")
    print(f"| {options.kills} | {results:,} | {images:,} | 0 |")


if __name__ == "__main__":
    main()
