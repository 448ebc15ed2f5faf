r"""Bounds of FID, GC_FID and KID by influences: how often they err, and what they cost.

Coverage: starts x, images y0 of the accepted checkpoint and y1 of a candidate are drawn, N of each;
the bounds of d = distance(x, y1) - distance(x, y0) are made by the gate's own code from ten
leave-out blocks ("jackknife"), from a score per sample ("influence"), and, beside them, from the
spread of 40 paired resamples ("bootstrap"). Counted is how often the truth lies below the lower
bound and above the upper one, each at 5 %. Two truths: the difference of the laws, and the mean
difference at this N, which is what two checkpoints of equal N are compared by. Worlds:

    null     both checkpoints of one law: d is 0 at any N
    drift    the candidate loses more of the start, and its mean moves
    other    the candidate's covariance has another shape
    same     starts and both checkpoints' images are independent and of one law: there is nothing
             of first order to see
    rare     the accepted checkpoint loses nothing, the candidate all of one sample in ten

Features are rectified (as Inception's are) mixtures of directions with variances 1 / k; an image is
its start, less what was lost, and noise.

Cost: CPU seconds of the distance alone, with influences, and with ten blocks, in turns.

    OMP_NUM_THREADS=1 python -m benchmarks.set_distance_bounds            # hours on one core
    OMP_NUM_THREADS=1 python -m benchmarks.set_distance_bounds --quick    # a minute
    OMP_NUM_THREADS=1 python -m benchmarks.set_distance_bounds --part cost --json cost.json

--seconds bounds the CPU time of a cell; the runs that were made are in the table. --measured joins
JSON files, and --page writes the tables into the page of results.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.frechet_distance import features, mixture
from benchmarks.gated import fill_in, table
from benchmarks.set_jackknife import frechet_with_blocks, kernel_with_blocks, timed
from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.metrics.frechet import frechet_distance
from pytest_cepbench.metrics.frechet_influence import frechet_influences
from pytest_cepbench.metrics.kernel_distance import KernelBlocks
from pytest_cepbench.metrics.uncertainty import BLOCKS, pseudo_values

Rows = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]

ALPHA = 0.05
_RESAMPLES = 40
_Z = 1.6448536269514722

WORLDS = {
    "null": (0.0, 0.0, 0.0),
    "drift": (0.15, 0.05, 0.0),
    "other": (0.0, 0.0, 0.5),
    "same": (0.0, 0.0, 0.0),
    "rare": (0.0, 0.0, 0.0),
}
"""Share of the start that the candidate loses more, shift of its mean, change of its spectrum."""

_EVEN = ("null", "same")  # no difference at any N

METHODS = ("jackknife", "influence", "bootstrap")


@dataclass(frozen=True)
class Cell:
    """What was measured of one metric, world, D and N.

    below, above: method -> share of runs whose truth (of this N, then of the laws) lay below the
    lower bound, or above the upper one.
    width: method -> median distance of the bounds, in standard deviations of d.
    """

    metric: str
    world: str
    dimension: int
    n: int
    runs: int
    mean: float
    sd: float
    truth: float | None
    below: dict[str, tuple[float, float | None]]
    above: dict[str, tuple[float, float | None]]
    width: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """Median CPU seconds of one metric, D and N."""

    metric: str
    dimension: int
    n: int
    alone: float
    influence: float
    jackknife: float


# -- laws ------------------------------------------------------------------------------------------


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


@cache
def law_difference(metric: str, dimension: int, world: str) -> float | None:
    """The difference of the laws' distances, from a sample large enough; None where it is not."""
    if world in _EVEN:
        return 0.0
    if dimension > 64:
        return None
    x, y0, y1 = draw(200_000 if metric == "fid" else 40_000, dimension, world, 1 << 30)
    return METRICS[metric].distance(x, y1) - METRICS[metric].distance(x, y0)


# -- metrics ---------------------------------------------------------------------------------------


def kernel_sums(x: Rows, y: Rows) -> KernelBlocks:
    """Fed as the suites do."""
    sums = KernelBlocks(len(x), len(y))
    for low in range(0, max(len(x), len(y)), 1000):
        sums.add(x[low : low + 1000], y[low : low + 1000])
    return sums


def kernel_alone(x: Rows, y: Rows) -> float:
    """KID."""
    return kernel_sums(x, y).distance()


def frechet_scores(x: Rows, y: Rows) -> tuple[float, Array]:
    """FID, and a pseudo-value for each pair of a start and its image."""
    result = frechet_influences(x, y)
    return result.distance, result.distance + result.x + result.y


def kernel_scores(x: Rows, y: Rows) -> tuple[float, Array]:
    """KID, likewise."""
    sums = kernel_sums(x, y)
    of_x, of_y = sums.influences()
    return sums.distance(), sums.distance() + of_x + of_y


@dataclass(frozen=True)
class Metric:
    """A distance, with a score per sample, and with those without each of ten blocks."""

    distance: Callable[[Rows, Rows], float]
    scores: Callable[[Rows, Rows], tuple[float, Array]]
    blocks: Callable[[Rows, Rows, npt.NDArray[np.intp], int], list[float]]


METRICS = {
    "fid": Metric(frechet_distance, frechet_scores, frechet_with_blocks),
    "kid": Metric(kernel_alone, kernel_scores, kernel_with_blocks),
}


# -- coverage --------------------------------------------------------------------------------------


def differences(metric: Metric, x: Rows, y0: Rows, y1: Rows) -> dict[str, tuple[float, Array]]:
    """Method -> the plain difference, and the differences of pseudo-values."""
    (before, own), (now, candidates) = metric.scores(x, y0), metric.scores(x, y1)
    labels = np.arange(len(x)) % min(BLOCKS, len(x) // 2)
    first, *without = metric.blocks(x, y0, labels, int(labels.max()) + 1)
    last, *others = metric.blocks(x, y1, labels, int(labels.max()) + 1)
    return {
        "jackknife": (last - first, pseudo_values(last, others) - pseudo_values(first, without)),
        "influence": (now - before, candidates - own),
    }


def gate_bounds(center: float, values: Array) -> tuple[float, float]:
    """The bounds that the gate makes of differences of pseudo-values."""
    units = np.arange(len(values))
    pairs = Differences(values, np.zeros(len(values), dtype=np.int64), units, center)
    bounds = mean_bounds(pairs, ALPHA, blocks=True)
    if bounds.low is None or bounds.high is None:  # nothing is said, so nothing is wrong
        return -math.inf, math.inf
    return bounds.low, bounds.high


def resampled(metric: Metric, x: Rows, y0: Rows, y1: Rows, seed: int) -> tuple[float, float]:
    """Bounds by the spread of paired resamples about the plain difference."""
    rng = np.random.default_rng(seed)
    center = metric.distance(x, y1) - metric.distance(x, y0)
    values = []
    for _ in range(_RESAMPLES):
        rows = rng.integers(len(x), size=len(x))
        values.append(metric.distance(x[rows], y1[rows]) - metric.distance(x[rows], y0[rows]))
    reach = _Z * statistics.stdev(values)
    return center - reach, center + reach


def cover(name: str, world: str, dimension: int, n: int, options: argparse.Namespace) -> Cell:
    """Draw and bound until the runs or the seconds are spent; resample in every fourth run.

    Half of the time is for the resamples.
    """
    metric = METRICS[name]
    bounds: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    centers: list[float] = []
    spent = {"draws": 0.0, "resamples": 0.0}
    for run in range(options.runs):
        if run >= options.least and spent["draws"] > options.seconds / 2:
            break
        started = time.process_time()
        rows = draw(n, dimension, world, run)
        for method, (center, values) in differences(metric, *rows).items():
            bounds[method].append(gate_bounds(center, values))
        centers.append(center)
        drawn = time.process_time()
        spent["draws"] += drawn - started
        if run % 4 == 0 and spent["resamples"] < options.seconds / 2:
            bounds["bootstrap"].append(resampled(metric, *rows, run))
            spent["resamples"] += time.process_time() - drawn
    mean, sd = statistics.fmean(centers), statistics.stdev(centers)
    own = 0.0 if world in _EVEN else mean
    truth = law_difference(name, dimension, world)
    return Cell(
        name,
        world,
        dimension,
        n,
        len(centers),
        mean,
        sd,
        truth,
        below={m: _shares(b, own, truth, 0) for m, b in bounds.items()},
        above={m: _shares(b, own, truth, 1) for m, b in bounds.items()},
        width={
            m: statistics.median(high - low for low, high in b) / sd if sd else 0.0
            for m, b in bounds.items()
        },
    )


def _shares(
    bounds: Sequence[tuple[float, float]], own: float, truth: float | None, side: int
) -> tuple[float, float | None]:
    """Of bounds on one side of them: those that are wrong of this N, and of the laws if known."""
    return _share(bounds, own, side), None if truth is None else _share(bounds, truth, side)


def _share(bounds: Sequence[tuple[float, float]], truth: float, side: int) -> float:
    wrong = sum(truth < low if side == 0 else truth > high for low, high in bounds)
    return wrong / len(bounds)


# -- cost ------------------------------------------------------------------------------------------


def cost(name: str, dimension: int, n: int, repeats: int) -> Cost:
    """CPU seconds of the distance alone, with scores, and with blocks, in turns."""
    metric = METRICS[name]
    mix = mixture(dimension)
    x, y = features(n, mix, 1), features(n, mix, 2)
    labels = np.random.default_rng(0).permutation(np.arange(n) % BLOCKS)
    spent: dict[str, list[float]] = {"alone": [], "influence": [], "jackknife": []}
    for _ in range(repeats):
        spent["alone"].append(timed(partial(metric.distance, x, y))[0])
        spent["influence"].append(timed(partial(metric.scores, x, y))[0])
        spent["jackknife"].append(timed(partial(metric.blocks, x, y, labels, BLOCKS))[0])
    medians = {side: statistics.median(seconds) for side, seconds in spent.items()}
    return Cost(name, dimension, n, **medians)


# -- figures ---------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, object]]]:
    """Both parts, or the one that was asked for; rows are printed as they come."""
    cells, costs = [], []
    if options.part != "cost":
        for dimension in options.dimensions:
            for n in options.samples:
                for world in WORLDS:
                    for name in METRICS:
                        cells.append(cover(name, world, dimension, n, options))
                        print(json.dumps(asdict(cells[-1])), file=sys.stderr, flush=True)
    if options.part != "coverage":
        for dimension in options.wide:
            for n in options.large:
                for name in METRICS:
                    costs.append(cost(name, dimension, n, options.repeats))
                    print(json.dumps(asdict(costs[-1])), file=sys.stderr, flush=True)
    return {"cells": [asdict(cell) for cell in cells], "costs": [asdict(row) for row in costs]}


def tables(document: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """Name and Markdown of each table that there are figures for."""
    cells = sorted(document["cells"], key=lambda c: (c["metric"], c["dimension"], c["n"]))
    for name in METRICS:
        rows = [_row(cell) for cell in cells if cell["metric"] == name]
        if rows:
            columns = (f"{m}, {what}" for m in METHODS for what in ("errs", "width"))
            head = ("D", "N", "world", "runs", *columns)
            yield f"coverage {name}", table(head, rows)
    if document["costs"]:
        head = ("metric", "D", "N", "alone, s", "with scores", "with ten blocks")
        yield "cost", table(head, [_cost_row(row) for row in document["costs"]])


def _row(cell: dict[str, Any]) -> list[str]:
    columns = [str(cell["dimension"]), str(cell["n"]), cell["world"], str(cell["runs"])]
    for method in METHODS:
        below, above = cell["below"][method], cell["above"][method]
        at_n = f"{below[0]:.1%} / {above[0]:.1%}"
        laws = "" if below[1] is None else f" ({below[1]:.1%} / {above[1]:.1%})"
        columns += [at_n + laws, f"{cell['width'][method]:.1f}"]
    return columns


def _cost_row(row: dict[str, Any]) -> list[str]:
    alone = row["alone"]
    ratios = [f"{row[side] / alone:.2f} x" for side in ("influence", "jackknife")]
    return [row["metric"], str(row["dimension"]), str(row["n"]), f"{alone:.3f}", *ratios]


def broken(document: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Bounds by influences of exchangeable checkpoints that err more often than they state."""
    lines = []
    for cell in document["cells"]:
        if cell["world"] not in _EVEN:
            continue
        error = math.sqrt(ALPHA * (1 - ALPHA) / cell["runs"])
        for side in ("below", "above"):
            rate = cell[side]["influence"][0]
            if rate > ALPHA + 3 * error:
                where = f"{cell['metric']}, {cell['world']}, D = {cell['dimension']}"
                lines.append(f"{where}, N = {cell['n']}: {side} {rate:.1%}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promise on exchangeable checkpoints is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", choices=["coverage", "cost"], help="both where left out")
    parser.add_argument("--samples", type=int, nargs="*", default=[50, 200, 1284, 5000])
    parser.add_argument("--dimensions", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument(
        "--least", type=int, default=20, help="runs that are made whatever it takes"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU seconds of a cell")
    parser.add_argument("--wide", type=int, nargs="*", default=[256, 512, 2048])
    parser.add_argument("--large", type=int, nargs="*", default=[1284, 5000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few runs of small sets")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--measured", type=Path, nargs="+", metavar="JSON", help="join these")
    parser.add_argument("--page", type=Path, help="replace the tables of this page")
    options = parser.parse_args(arguments)
    if options.quick:
        options.samples, options.dimensions, options.runs = [24, 60], [16], 40
        options.wide, options.large, options.repeats = [64], [256], 1
    if options.measured:
        read = [json.loads(path.read_text(encoding="utf-8")) for path in options.measured]
        document = {part: [row for own in read for row in own[part]] for part in ("cells", "costs")}
    else:
        document = measure(options)
    for name, text in tables(document):
        print(f"## {name}\n\n{text}")
        if options.page is not None:
            fill_in(options.page, name, text)
    print(f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, numpy {np.__version__}")
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    wrong = broken(document)
    for line in wrong:
        print(f"  broken: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
