r"""Frechet distance: this project against clean-fid, from the same features in one run.

Both sides start at two (N, D) float32 feature matrices and end at the number. Theirs is what
clean-fid does with features: mean and `np.cov`, then its `frechet_distance`, which takes scipy's
matrix square root. Sides take turns, each is timed in CPU seconds, and what is printed is the ratio
of their medians. One thread each: BLAS reads its number of threads when numpy is imported, so it
must be in the environment.

    OMP_NUM_THREADS=1 python -m benchmarks.frechet_distance
    OMP_NUM_THREADS=1 python -m benchmarks.frechet_distance --samples 50 500 --repeats 5 \
        --json out.json

Features: rectified mixtures of directions whose variances fall as 1 / k, another law on each side.
The second table is the peak of resident memory while the samples of one set come in shards, each in
a process of its own, as features are gathered here and as one matrix. clean-fid 0.1.35 needs SciPy
below 1.18. Linux only: it reads the peak from /proc.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.frechet import frechet_distance
from pytest_cepbench.metrics.moments import FeatureSet

Features = npt.NDArray[np.float32]

_QUICK = 1.0  # seconds: a side faster than this is measured five times at least


@dataclass(frozen=True)
class Row:
    """One N: median CPU seconds of each side, their ratio, and how far the values differ."""

    n: int
    ours: float
    theirs: float
    ratio: float
    value: float
    relative_difference: float
    ours_to_itself: float
    runs: tuple[int, int]


def features(n: int, mix: Features, seed: int) -> Features:
    """Synthetic encoder output, (n, D)."""
    random = np.random.default_rng(seed)
    scale = np.arange(1, len(mix) + 1, dtype=np.float32) ** -0.5
    drawn = (random.standard_normal((n, len(mix)), dtype=np.float32) * scale) @ mix
    rectified: Features = np.maximum(drawn + np.float32(0.1 * seed), 0)
    return rectified


def mixture(dimension: int) -> Features:
    """The directions that all features share, (D, D)."""
    random = np.random.default_rng(99)
    return random.standard_normal((dimension, dimension), dtype=np.float32) / np.float32(
        dimension**0.5
    )


def by_clean_fid(x: Features, y: Features) -> float:
    """Mean, covariance and distance as clean-fid forms them, but for means in float64 as ours."""
    from cleanfid import fid

    with warnings.catch_warnings():
        # SciPy 1.17 announces that the argument which clean-fid gives is going away.
        warnings.simplefilter("ignore", DeprecationWarning)
        moments = [
            part for rows in (x, y) for part in (rows.mean(axis=0, dtype=float), np.cov(rows.T))
        ]
        return float(fid.frechet_distance(*moments))


def timed(action: Callable[[], float]) -> tuple[float, float]:
    """CPU seconds of one call, and what it returned."""
    started = time.process_time()
    value = action()
    return time.process_time() - started, value


def compare(n: int, mix: Features, repeats: int) -> Row:
    """Both sides in turns."""
    x, y = features(n, mix, 1), features(n, mix, 2)
    ours, theirs = [], []
    frechet_distance(x[:2], y[:2])
    for _ in range(repeats):
        ours.append(timed(partial(frechet_distance, x, y)))
        theirs.append(timed(partial(by_clean_fid, x, y)))
    while ours[0][0] < _QUICK and len(ours) < 5:
        ours.append(timed(partial(frechet_distance, x, y)))
    fast, slow = (statistics.median(seconds for seconds, _ in side) for side in (ours, theirs))
    value, their_value = ours[0][1], theirs[0][1]
    return Row(
        n=n,
        ours=fast,
        theirs=slow,
        ratio=slow / fast,
        value=value,
        relative_difference=abs(their_value - value) / value,
        ours_to_itself=frechet_distance(x, x),
        runs=(len(ours), len(theirs)),
    )


def peak_growth(gather: str, n: int, dimension: int, shard: int) -> float:
    """MB that a fresh process grows at its peak over what it held with one shard in memory."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_gather, args=(gather, n, dimension, shard, sending))
    process.start()
    sending.close()
    grown: float = receiving.recv()
    process.join()
    return grown


def _gather(
    gather: str,
    n: int,
    dimension: int,
    shard: int,
    answer: multiprocessing.connection.Connection,
) -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((shard, dimension), dtype=np.float32)
    rows[:2] @ rows[:2].T  # BLAS takes its own buffers at the first product
    sizes = [min(shard, n - low) for low in range(0, n, shard)]
    # A 5 sets the peak that the kernel keeps back to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    if gather == "this project":
        features = FeatureSet(dimension)
        for size in sizes:
            features.add(rows[:size])
        features.moments()
    else:
        whole = np.empty((n, dimension))
        for part, size in enumerate(sizes):
            whole[part * shard : part * shard + size] = rows[:size]
        if gather == "matrix and np.cov":
            np.cov(whole.T)
    answer.send(_peak() - before)


def _peak() -> float:
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) * 1024 / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, nargs="*", default=[50, 500, 1284, 5000])
    parser.add_argument("--dimension", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gathered", type=int, default=10_000)
    parser.add_argument("--shard", type=int, default=256)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("start it with OMP_NUM_THREADS=1 in the environment, as its docstring shows")

    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "clean-fid"))
    print(f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, {versions}")
    print(f"D = {options.dimension}, medians of CPU seconds, features to distance\n")
    print(f"{'N':>6}{'ours':>10}{'clean-fid':>11}{'ratio':>9}{'rel. diff.':>12}{'ours(x,x)':>11}")
    mix = mixture(options.dimension)
    rows = []
    for n in options.samples:
        row = compare(n, mix, options.repeats)
        rows.append(row)
        print(
            f"{n:6}{row.ours:10.4f}{row.theirs:11.2f}{row.ratio:9.1f}"
            f"{row.relative_difference:12.1e}{row.ours_to_itself:11.1e}",
            flush=True,
        )
    print(f"\n{options.gathered} x {options.dimension} in shards of {options.shard}: peak growth")
    peaks = {
        gather: peak_growth(gather, options.gathered, options.dimension, options.shard)
        for gather in ("this project", "matrix alone", "matrix and np.cov")
    }
    for gather, megabytes in peaks.items():
        print(f"  {gather:20}{megabytes:7.0f} MB")
    if options.json:
        report = {"versions": versions, "rows": [asdict(row) for row in rows], "peaks_mb": peaks}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
