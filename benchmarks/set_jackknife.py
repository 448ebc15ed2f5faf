r"""Set metrics with error bars: a distance and its leave-outs against the distance alone.

Both sides start at the (N, D) float32 features of the starts and of one iteration's images, as the
suites hold them. One side ends at the distance, the other at the distance and those without each of
ten blocks of samples, by which the gate bounds a paired difference. A third column is the plain
way: the same distances one by one, each from the rows that are left. Sides take turns, each is
timed in CPU seconds, and what is printed is the ratio of their medians, with the peak of resident
memory of each in a process of its own beside it (features not counted). One thread each: BLAS reads
its number of threads when numpy is imported, so it must be in the environment.

    OMP_NUM_THREADS=1 python -m benchmarks.set_jackknife
    OMP_NUM_THREADS=1 python -m benchmarks.set_jackknife --quick
    OMP_NUM_THREADS=1 python -m benchmarks.set_jackknife --samples 1284 --blocks 5 10 20 \
        --json out.json

Features: rectified mixtures of directions whose variances fall as 1 / k, another law on each side.
GC_FID at T takes T times as long as what is shown, less what FID shares with it. Fails where the
two ways disagree by more than 1e-9 of the distance. Linux only: it reads the peak from /proc.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.frechet_distance import features, mixture
from pytest_cepbench.metrics.frechet import frechet_distance, frechet_distances_without
from pytest_cepbench.metrics.kernel_distance import KernelBlocks

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.intp]

V = TypeVar("V")

_QUICK_SAMPLES = [50, 500]
_AGREES = 1e-9


@dataclass(frozen=True)
class Row:
    """One metric, D, N and number of blocks.

    alone, jackknife: median CPU seconds. plain: of a single run of the plain way, None where it was
    not run. differs: largest relative difference of the two ways. alone_mb, jackknife_mb: growth of
    a fresh process at its peak.
    """

    metric: str
    dimension: int
    n: int
    blocks: int
    alone: float
    jackknife: float
    ratio: float
    plain: float | None
    differs: float | None
    alone_mb: float
    jackknife_mb: float
    runs: int


def frechet_with_blocks(x: Features, y: Features, labels: Labels, blocks: int) -> list[float]:
    """The distance, then those without a block."""
    return [frechet_distance(x, y), *frechet_distances_without(x, y, labels, labels, blocks)]


def kernel_alone(x: Features, y: Features) -> float:
    """The distance, fed as the suites do."""
    return _kernel_sums(x, y, np.zeros(len(x), dtype=np.intp)).distance()


def kernel_with_blocks(x: Features, y: Features, labels: Labels, blocks: int) -> list[float]:
    """The distance, then those without a block."""
    sums = _kernel_sums(x, y, labels)
    return [sums.distance(), *(sums.distance_without(block) for block in range(blocks))]


def _kernel_sums(x: Features, y: Features, labels: Labels) -> KernelBlocks:
    sums = KernelBlocks(len(x), len(y))
    for low in range(0, len(x), 1000):
        some = slice(low, low + 1000)
        sums.add(x[some], y[some], (labels[some], labels[some]))
    return sums


ALONE: dict[str, Callable[[Features, Features], float]] = {
    "fid": frechet_distance,
    "kid": kernel_alone,
}

WITH_BLOCKS: dict[str, Callable[[Features, Features, Labels, int], list[float]]] = {
    "fid": frechet_with_blocks,
    "kid": kernel_with_blocks,
}


def one_by_one(
    distance: Callable[[Features, Features], float],
    x: Features,
    y: Features,
    labels: Labels,
    blocks: int,
) -> list[float]:
    """The plain way."""
    left = [distance(x[labels != block], y[labels != block]) for block in range(blocks)]
    return [distance(x, y), *left]


def timed(action: Callable[[], V]) -> tuple[float, V]:
    """CPU seconds of one call, and what it returned."""
    started = time.process_time()
    value = action()
    return time.process_time() - started, value


def compare(metric: str, n: int, blocks: int, mix: Features, options: argparse.Namespace) -> Row:
    """Both sides in turns; the plain way once, where it is the same number."""
    x, y, labels = _sets(n, blocks, mix)
    alone, whole = ALONE[metric], WITH_BLOCKS[metric]
    alone(x[:2], y[:2])
    without, jackknife = [], []
    for _ in range(options.repeats):
        without.append(timed(partial(alone, x, y))[0])
        seconds, values = timed(partial(whole, x, y, labels, blocks))
        jackknife.append(seconds)
    plain, differs = None, None
    # Past one block of 1000 a kernel distance of fewer samples has other blocks of its own.
    if n <= options.plain_up_to and not (metric == "kid" and n > 1000):
        plain, expected = timed(partial(one_by_one, alone, x, y, labels, blocks))
        differs = float(np.abs(np.array(values) - expected).max() / expected[0])
    fast, slow = statistics.median(without), statistics.median(jackknife)
    return Row(
        metric=metric,
        dimension=len(mix),
        n=n,
        blocks=blocks,
        alone=fast,
        jackknife=slow,
        ratio=slow / fast,
        plain=plain,
        differs=differs,
        alone_mb=peak_growth(metric, n, 0, len(mix)),
        jackknife_mb=peak_growth(metric, n, blocks, len(mix)),
        runs=options.repeats,
    )


def _sets(n: int, blocks: int, mix: Features) -> tuple[Features, Features, Labels]:
    labels = np.random.default_rng(0).permutation(np.arange(n) % max(blocks, 1))
    return features(n, mix, 1), features(n, mix, 2), labels


def peak_growth(metric: str, n: int, blocks: int, dimension: int) -> float:
    """MB that a fresh process grows at its peak over what it holds with both sets in memory."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(metric, n, blocks, dimension, sending))
    process.start()
    sending.close()
    grown: float = receiving.recv()
    process.join()
    return grown


def _measure(
    metric: str,
    n: int,
    blocks: int,
    dimension: int,
    answer: multiprocessing.connection.Connection,
) -> None:
    x, y, labels = _sets(n, blocks, mixture(dimension))
    x[:2] @ y[:2].T  # BLAS takes its own buffers at the first product
    # A 5 sets the peak that the kernel keeps back to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    if blocks:
        WITH_BLOCKS[metric](x, y, labels, blocks)
    else:
        ALONE[metric](x, y)
    answer.send(_memory("VmHWM") - before)


def _memory(field: str) -> float:
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(field)
    ]
    return int(line.split()[1]) * 1024 / 1e6


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, nargs="*", default=[50, 500, 1284, 5000])
    parser.add_argument("--dimensions", type=int, nargs="*", default=[512, 2048])
    parser.add_argument("--blocks", type=int, nargs="*", default=[10])
    parser.add_argument("--metrics", nargs="*", choices=list(ALONE), default=list(ALONE))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--plain-up-to", type=int, default=1284, help="largest N of the plain way")
    parser.add_argument("--quick", action="store_true", help="N of 50 and 500, D = 512 only")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("start it with OMP_NUM_THREADS=1 in the environment, as its docstring shows")
    if options.quick:
        options.samples, options.dimensions = _QUICK_SAMPLES, [512]

    versions = f"numpy {version('numpy')}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, {versions}")
    print(f"medians of CPU seconds, {options.repeats} runs of each side in turns\n")
    print(
        "metric     D     N  blocks     alone  jackknife  ratio     plain    differs"
        "   alone  jackknife"
    )
    rows = []
    for dimension in options.dimensions:
        mix = mixture(dimension)
        for metric in options.metrics:
            for n in options.samples:
                for blocks in options.blocks:
                    rows.append(compare(metric, n, blocks, mix, options))
                    print(_line(rows[-1]), flush=True)
    if options.json:
        report = {"versions": versions, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    apart = [row for row in rows if row.differs is not None and row.differs > _AGREES]
    for row in apart:
        print(f"{row.metric} at N = {row.n}, D = {row.dimension}: the two ways disagree")
    return 1 if apart else 0


def _line(row: Row) -> str:
    plain = "-" if row.plain is None else f"{row.plain:.3f}"
    differs = "-" if row.differs is None else f"{row.differs:.1e}"
    return (
        f"{row.metric:6}{row.dimension:6}{row.n:6}{row.blocks:8}{row.alone:10.4f}"
        f"{row.jackknife:11.4f}{row.ratio:7.1f}{plain:>10}{differs:>11}"
        f"{row.alone_mb:5.0f} MB{row.jackknife_mb:8.0f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
