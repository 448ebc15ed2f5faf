"""Which metric sees what: power at equal false alarm over kinds of damage, and its price in calls.

    OMP_NUM_THREADS=1 python -m benchmarks.sensitivity --jobs 2 --write   # half an hour
    OMP_NUM_THREADS=1 python -m benchmarks.sensitivity --quick            # seconds

Two worlds: the instrument (rule-based models, of which one has a knob turned up) and the reference
models (the best describer with the thirteen damages of `reference/regress.py`, and earlier steps of
either role). Undamaged models
are played at several seeds; the drops between these runs say which drop alarms in 5 % of them. Then
the damaged models are played at other seeds, and the share that alarms is counted, from few samples
to many. What is played is kept in the store that pytest uses in this repository.

Prints Markdown tables; --write puts the first one of each world into
benchmarks/results/sensitivity.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from math import exp, log, log2
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from benchmarks.pages import fill_in, table
from benchmarks.sensitivity_figures.playing import MetricRun, Played, play
from benchmarks.sensitivity_figures.worlds import (
    CONTROL,
    ROOT,
    UNCHANGED,
    Sampling,
    Setting,
    World,
    instrument,
    reference,
)
from pytest_cepbench.errors import CepError

Array = npt.NDArray[np.float64]

PAGE = ROOT / "benchmarks" / "results" / "sensitivity.md"

WORLDS = ("reference", "instrument")

DAMAGED_SEEDS = (10,)

_BLIND = 0.1
"""Power at the most samples, below which a metric is said to see nothing."""

_MOST_NAMED = 3

ALPHA = 0.05
"""The share of undamaged runs that alarm, the same for every metric."""

TARGET = 0.8
"""The power that the cost of a metric is stated for."""

_DECIMALS = 9  # drops that differ by rounding alone are ties


@dataclass(frozen=True)
class Threshold:
    """When a metric alarms.

    drop: the drop beyond which it does.
    tie: the probability that it does at exactly this drop, so that metrics with few values have
        the same false alarm as all others (a randomized test, as in the lemma of Neyman and
        Pearson).
    """

    drop: float
    tie: float


def calibrate(null: Array) -> Threshold:
    """The threshold that a share `ALPHA` of the drops without damage exceeds.

    null: (runs,) drops between two undamaged runs, positive where the second is worse.
    """
    drops = np.round(null, _DECIMALS)
    values, counts = np.unique(drops, return_counts=True)
    above = 1 - np.cumsum(counts) / drops.size  # the share beyond each value
    first = int(np.argmax(above <= ALPHA + 1e-12))
    at = counts[first] / drops.size
    return Threshold(float(values[first]), float(min(1.0, max(0.0, ALPHA - above[first]) / at)))


def alarm_rate(threshold: Threshold, drops: Array) -> float:
    """The share of runs that alarm: the power where they are damaged, in [0, 1].

    drops: (runs,), infinite where the damaged run has no value, which fails it.
    """
    rounded = np.round(drops, _DECIMALS)
    beyond, even = (rounded > threshold.drop).mean(), (rounded == threshold.drop).mean()
    return float(beyond + threshold.tie * even)


def drops_between(before: Sequence[Array], now: Sequence[Array], sign: int) -> Array:
    """The drops of every run with a metric after against every one before, whose seeds differ.

    before, now: (draws,) values of each run over the same draws of samples. sign: 1 where higher is
    better, else -1. Where both are the same runs, no run stands against itself.
    """
    pairs = [sign * (first - second) for first in before for second in now if first is not second]
    return np.concatenate(pairs) if pairs else np.empty(0)


def samples_needed(rates: Mapping[int, float]) -> tuple[float, bool]:
    """The fewest samples with the target power, between two sizes by the logarithm of the size.

    rates: number of samples -> power. A larger number is taken to see at least as much as a
    smaller one: where the rates fall, the earlier one holds.
    Returns also whether the power is reached at all; the largest number that was tried, if not.
    """
    sizes = sorted(rates)
    best = np.maximum.accumulate([rates[size] for size in sizes]).tolist()
    if best[0] >= TARGET:
        return float(sizes[0]), True
    for place in range(1, len(sizes)):
        if best[place] >= TARGET:
            part = (TARGET - best[place - 1]) / (best[place] - best[place - 1])
            low, high = log2(sizes[place - 1]), log2(sizes[place])
            return float(2 ** (low + part * (high - low))), True
    return float(sizes[-1]), False


def make_world(name: str, copies: Path, *, quick: bool) -> World:
    """A world at its full size, or in small. copies: folder of damaged checkpoints."""
    seeds: tuple[int, ...] = (0, 1) if quick else (0, 1, 2, 3)
    if quick:
        sampling = Sampling(4, (1, 2), 10)
    elif name == "reference":
        sampling = Sampling(8, (1, 2, 4), 40)
    else:
        sampling = Sampling(24, (1, 2, 4, 8), 40)
    if name == "reference":
        return reference(sampling, seeds, DAMAGED_SEEDS, copies)
    return instrument(sampling, seeds, DAMAGED_SEEDS)


@dataclass(frozen=True)
class Sight:
    """What one metric sees of one damage.

    samples, reached: as of `samples_needed`. rate: power at the most samples that were tried.
    """

    samples: float
    reached: bool
    rate: float


@dataclass(frozen=True)
class Figures:
    """What was seen of a world.

    seconds: wall time. samples: played. metrics: undamaged, by name. sights: by damage and key;
    without a damage whose runs are errors.
    """

    seconds: float
    samples: int
    metrics: Mapping[str, MetricRun]
    sights: Mapping[str, Mapping[str, Sight]]


def measure(world: World, store: Path, jobs: int) -> Figures:
    """Play the world, and see which metric sees what. jobs: processes that play."""
    started = time.perf_counter()
    work = [(world.setting, seed) for seed in world.seeds]
    for damage in world.damages:
        work += [(damage.setting, seed) for seed in world.damaged_seeds]
    work = list(dict.fromkeys(work))
    if jobs == 1:
        runs = [_play(*job, world.sampling, store) for job in work]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            arguments = (*zip(*work, strict=True), repeat(world.sampling), repeat(store))
            runs = list(pool.map(_play, *arguments))
    played = dict(zip(work, runs, strict=True))

    undamaged = [played[world.setting, seed] for seed in world.seeds]
    if why := next((run.refused for run in undamaged if run.refused), ""):
        raise ValueError(f"{world.name}: undamaged models cannot be measured: {why}")
    sights: dict[str, dict[str, Sight]] = {}
    for damage in world.damages:
        damaged = [played[damage.setting, seed] for seed in world.damaged_seeds]
        if not any(run.refused for run in damaged):
            sights[damage.name] = {
                name: _sight(
                    [run.metrics[name] for run in undamaged],
                    [run.metrics.get(name) for run in damaged],
                )
                for name in undamaged[0].metrics
            }
    seconds = time.perf_counter() - started
    return Figures(seconds, undamaged[0].samples, undamaged[0].metrics, sights)


def _play(setting: Setting, seed: int, sampling: Sampling, store: Path) -> Played:
    started = time.perf_counter()
    played = play(setting, seed, sampling, store)
    models = ", ".join(Path(spec).name for spec in setting.roles.values())
    seconds = time.perf_counter() - started
    print(f"{models}, seed {seed}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return played


def _sight(before: Sequence[MetricRun], now: Sequence[MetricRun | None]) -> Sight:
    sign = 1 if before[0].higher_is_better else -1
    worst = -sign * np.inf  # a run without a value fails, so it has dropped below everything

    def values(run: MetricRun | None, size: int) -> Array:
        if run is None:
            return np.full_like(before[0].values[size], worst)
        return np.where(np.isnan(run.values[size]), worst, run.values[size])

    rates = {}
    for size in before[0].values:
        undamaged = [run.values[size] for run in before]
        threshold = calibrate(drops_between(undamaged, undamaged, sign))
        damaged = [values(run, size) for run in now]
        rates[size] = alarm_rate(threshold, drops_between(undamaged, damaged, sign))
    return Sight(*samples_needed(rates), rates[max(rates)])


# -- tables ----------------------------------------------------------------------------------------


def summary_table(figures: Figures) -> str:
    """Over all damages that leave something to measure: what each metric sees, and its price."""
    damages = [name for name in figures.sights if name not in (UNCHANGED, CONTROL)]
    metrics, least = figures.metrics, {}
    for name in damages:
        reaching = {key: own.samples for key, own in figures.sights[name].items() if own.reached}
        least[name] = min((metrics[key].calls * n for key, n in reaching.items()), default=0.0)
    rows = []
    for key, metric in metrics.items():
        sights = {name: figures.sights[name][key] for name in damages}
        seen = [name for name, sight in sights.items() if sight.reached]
        times = [metric.calls * sights[n].samples / least[n] for n in damages if least[n]]
        typical = exp(fmean(map(log, times))) if times else 0.0
        blind = [f"`{name}`" for name, sight in sights.items() if sight.rate < _BLIND]
        rows.append((
            metric.label,
            f"{len(seen)} of {len(damages)}",
            f"{'' if len(seen) == len(damages) else '> '}{typical:.1f}",
            ", ".join(blind) or "-" if len(blind) <= _MOST_NAMED else f"{len(blind)} damages",
        ))  # fmt: skip
    return table(("metric", "damages seen", "calls, in those of the cheapest", "blind to"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write what was asked for; 2 where something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}; all")
    parser.add_argument("--quick", action="store_true", help="the instrument with few samples")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play; 1")
    parser.add_argument("--store", type=Path, default=ROOT / ".cepbench" / "store")
    parser.add_argument("--copies", type=Path, default=ROOT / ".cepbench" / "damaged")
    options = parser.parse_args(arguments)
    if unknown := set(options.worlds) - set(WORLDS):
        parser.error(f"no world {min(unknown)!r}; there are {', '.join(WORLDS)}")
    if options.jobs < 1:
        parser.error(f"--jobs: at least one process has to play, got {options.jobs}")
    if options.quick and options.write:
        parser.error("--write: the page has figures of the full size")
    for name in options.worlds or (("instrument",) if options.quick else WORLDS):
        try:
            world = make_world(name, options.copies, quick=options.quick)
            figures = measure(world, options.store, options.jobs)
        except (CepError, ValueError, OSError) as error:
            print(f"sensitivity: {error}", file=sys.stderr)
            return 2
        text = summary_table(figures)
        print(f"## {name}\n\n{text}\n")
        print(
            f"{figures.samples} samples, {figures.seconds:.0f} s on {os.cpu_count()} cores, "
            f"{platform.machine()}, Python {platform.python_version()}\n"
        )
        if options.write:
            fill_in(PAGE, {f"{name}-summary": text})
    return 0


if __name__ == "__main__":
    sys.exit(main())
