r"""Frechet distance: this project against clean-fid, from the same features in one run.

Both sides start at two (N, D) float32 feature matrices. Theirs is what clean-fid does with
features: mean and `np.cov`, then its `frechet_distance`, which takes scipy's matrix square root.
Ours ends at the number and a score for every sample. Sides take turns, each is timed in CPU
seconds, and what is printed is the ratio of their medians. One thread each: BLAS reads its number
of threads when numpy is imported, so it must be in the environment.

    OMP_NUM_THREADS=1 python -m benchmarks.frechet_distance
    OMP_NUM_THREADS=1 python -m benchmarks.frechet_distance --samples 50 500 --repeats 5

Features: rectified mixtures of directions whose variances fall as 1 / k, another law on each side.
clean-fid 0.1.35 needs SciPy below 1.18.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
import warnings
from importlib.metadata import version

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.set_distances import frechet_distance

Features = npt.NDArray[np.float32]


def features(n: int, dimension: int, seed: int) -> Features:
    """Synthetic encoder output, (n, D)."""
    mix = np.random.default_rng(99).standard_normal((dimension, dimension), dtype=np.float32)
    scale = np.arange(1, dimension + 1, dtype=np.float32) ** -0.5
    random = np.random.default_rng(seed)
    drawn = (random.standard_normal((n, dimension), dtype=np.float32) * scale) @ mix
    rectified: Features = np.maximum(drawn / np.float32(dimension**0.5) + np.float32(0.1 * seed), 0)
    return rectified


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, nargs="*", default=[50, 500, 1284, 5000])
    parser.add_argument("--dimension", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("start it with OMP_NUM_THREADS=1 in the environment, as its docstring shows")
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "clean-fid"))
    print(f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, {versions}")
    print(f"D = {options.dimension}, medians of CPU seconds, features to distance\n")
    print(f"{'N':>6}{'ours':>10}{'clean-fid':>11}{'ratio':>9}{'rel. diff.':>12}{'ours(x,x)':>11}")
    for n in options.samples:
        x, y = features(n, options.dimension, 1), features(n, options.dimension, 2)
        spent: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.repeats):
            values = []
            for seconds, distance in zip(spent, (frechet_distance, by_clean_fid), strict=True):
                started = time.process_time()
                values.append(distance(x, y))
                seconds.append(time.process_time() - started)
        ours, theirs = map(statistics.median, spent)
        apart = abs(values[1] - values[0]) / values[0]
        print(
            f"{n:6}{ours:10.4f}{theirs:11.2f}{theirs / ours:9.1f}{apart:12.1e}"
            f"{frechet_distance(x, x):11.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
