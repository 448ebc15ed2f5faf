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
clean-fid 0.1.35 needs SciPy below 1.18.
"""

from __future__ import annotations

import argparse
import json
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

from pytest_cepbench.metrics.set_distances import frechet_distance

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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, nargs="*", default=[50, 500, 1284, 5000])
    parser.add_argument("--dimension", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
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
    if options.json:
        report = {"versions": versions, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
