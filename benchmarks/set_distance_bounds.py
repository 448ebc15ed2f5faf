r"""Bounds of FID and KID: how often they err.

Starts x, images y0 of the accepted checkpoint and y1 of a candidate are drawn, N of each. The
bounds of d = distance(x, y1) - distance(x, y0) are made by the gate's own code: for FID of a score
per sample, for KID of ten blocks that are left out in turn. Counted is how often the mean
difference at this N, which is what two checkpoints of equal N are compared by, lies below the lower
bound and above the upper one, each at 5 %. Worlds:

    null     both checkpoints of one law: d is 0 at any N
    drift    the candidate loses more of the start, and its mean moves
    other    the candidate's covariance has another shape
    same     starts and both checkpoints' images are independent and of one law: there is nothing
             of first order to see
    rare     the accepted checkpoint loses nothing, the candidate all of one sample in ten

Features are rectified (as Inception's are) mixtures of directions with variances 1 / k; an image is
its start, less what was lost, and noise.

    OMP_NUM_THREADS=1 python -m benchmarks.set_distance_bounds            # an hour on one core
    OMP_NUM_THREADS=1 python -m benchmarks.set_distance_bounds --runs 40 --cells 16:24 16:60

--seconds bounds the CPU time of a cell; the runs that were made are in the table.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.pages import fill_in, table
from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.metrics.set_distances import (
    frechet_influences,
    kernel_distances,
)
from pytest_cepbench.metrics.uncertainty import BLOCKS, pseudo_values

Rows = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]

ALPHA = 0.05

WORLDS = {
    "null": (0.0, 0.0, 0.0),
    "drift": (0.15, 0.05, 0.0),
    "other": (0.0, 0.0, 0.5),
    "same": (0.0, 0.0, 0.0),
    "rare": (0.0, 0.0, 0.0),
}
"""Share of the start that the candidate loses more, shift of its mean, change of its spectrum."""

_EVEN = ("null", "same")  # no difference at any N


def draw(n: int, dimension: int, world: str, seed: int) -> tuple[Rows, Rows, Rows]:
    """Starts, images of the accepted checkpoint, images of the candidate."""
    rng = np.random.default_rng(seed)
    lost, moved, bent = WORLDS[world]
    turn = np.linalg.qr(np.random.default_rng(dimension).normal(size=(dimension, dimension)))[0]
    scale = 1 / np.sqrt(np.arange(1, dimension + 1))
    starts = rng.normal(size=(n, dimension)) * scale
    noise = [rng.normal(size=(n, dimension)) * scale for _ in range(2)]
    accepted = 0.8 * starts + 0.5 * noise[0]
    shape = 1 + bent * np.cos(np.arange(dimension))
    candidate = ((0.8 - lost) * starts + 0.5 * noise[1]) * shape + moved
    if world == "same":
        accepted, candidate = noise
    elif world == "rare":
        accepted = starts
        candidate = np.where(rng.random((n, 1)) < 0.1, noise[1], starts)
    x, y0, y1 = (
        np.maximum(rows @ turn + 0.3, 0).astype(np.float32)
        for rows in (starts, accepted, candidate)
    )
    return x, y0, y1


def frechet_scores(x: Rows, y: Rows) -> tuple[float, Array]:
    """FID, and the score of each pair of a start and its image."""
    result = frechet_influences(x, y)
    return result.distance, result.distance + result.x + result.y


def kernel_blocks(x: Rows, y: Rows) -> tuple[float, Array]:
    """KID, and the pseudo-value of each block."""
    labels = np.arange(len(x)) % BLOCKS
    whole, without = kernel_distances(x, y, labels, labels, BLOCKS)
    return whole, pseudo_values(whole, without)


METRICS: dict[str, Callable[[Rows, Rows], tuple[float, Array]]] = {
    "FID": frechet_scores,
    "KID": kernel_blocks,
}
"""The distance, and what its bounds are made of."""


def gate_bounds(center: float, values: Array) -> tuple[float, float]:
    """The bounds that the gate makes of differences of scores or of pseudo-values."""
    units = np.arange(len(values))
    pairs = Differences(values, np.zeros(len(values), dtype=np.int64), units, center)
    bounds = mean_bounds(pairs, ALPHA, blocks=True)
    # Where nothing is excluded nothing is wrong.
    low = -math.inf if bounds.low is None else bounds.low
    return low, math.inf if bounds.high is None else bounds.high


def cover(
    metric: str, dimension: int, n: int, world: str, options: argparse.Namespace
) -> tuple[int, float, float, float]:
    """Draw and bound until the runs or the seconds are spent.

    Returns the runs, the shares of them in which the truth lies below and above the bounds, and
    their width.
    """
    bounds: list[tuple[float, float]] = []
    centers: list[float] = []
    started = time.process_time()
    while len(centers) < options.runs and time.process_time() - started < options.seconds:
        x, y0, y1 = draw(n, dimension, world, len(centers))
        (before, own), (now, candidates) = (METRICS[metric](x, y) for y in (y0, y1))
        bounds.append(gate_bounds(now - before, candidates - own))
        centers.append(now - before)
    lows, highs = np.array(bounds).T
    truth = 0.0 if world in _EVEN else statistics.fmean(centers)
    width = statistics.median((highs - lows).tolist()) / statistics.stdev(centers)
    return len(centers), float((truth < lows).mean()), float((truth > highs).mean()), width


def _span(values: Sequence[float], shown: str) -> str:
    low, high = format(min(values), shown), format(max(values), shown)
    return low if low == high else f"{low} to {high}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promise on exchangeable checkpoints is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    sizes = ["16:50", "16:200", "16:1284", "64:50", "64:200"]
    parser.add_argument("--cells", nargs="*", default=sizes, metavar="D:N")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds of a row")
    parser.add_argument("--page", type=Path, help="replace the table of this page")
    options = parser.parse_args(arguments)
    rows, broken = [], False
    for metric in METRICS:
        for dimension, n in (map(int, cell.split(":")) for cell in options.cells):
            found = [cover(metric, dimension, n, world, options) for world in WORLDS]
            for world, (runs, below, above, _) in zip(WORLDS, found, strict=True):
                limit = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
                if world in _EVEN and max(below, above) > limit:
                    print(f"BROKEN: {metric} of {n} in {dimension} dimensions, {world}")
                    broken = True
            all_runs, _, _, widths = zip(*found, strict=True)
            errs = [f"{100 * below:.1f} / {100 * above:.1f}" for _, below, above, _ in found]
            size = (metric, str(dimension), str(n), _span(all_runs, "d"))
            rows.append((*size, *errs, _span(widths, ".1f")))
            print(*rows[-1], flush=True)
    text = table(("metric", "D", "N", "runs", *WORLDS, "width"), rows)
    print(f"\n{text}")
    if options.page is not None:
        fill_in(options.page, {"coverage": text})
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
