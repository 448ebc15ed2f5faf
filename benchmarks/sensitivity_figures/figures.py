"""The figures of sensitivity, as plain data that is written to a JSON file and read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.sensitivity_figures.lineups import World
from benchmarks.sensitivity_figures.playing import MetricRun, Played
from benchmarks.sensitivity_figures.power import (
    Array,
    Need,
    alarm_rate,
    bounds,
    calibrate,
    drops_between,
    samples_needed,
)


@dataclass(frozen=True)
class Metric:
    """What is asked. suite: whose metric it is. calls: by role, of one sample for it alone."""

    suite: str
    name: str
    label: str
    calls: Mapping[str, float]

    @property
    def key(self) -> str:
        """The name that no other metric of its world has."""
        return f"{self.suite}: {self.name}"

    @property
    def cost(self) -> float:
        """Calls of one sample."""
        return sum(self.calls.values())


@dataclass(frozen=True)
class Rate:
    """Power at a number of samples, and its interval. threshold: the drop that alarms."""

    samples: int
    rate: float
    low: float
    high: float
    threshold: float


@dataclass(frozen=True)
class Sight:
    """What one metric sees of one damage.

    metric: its key. drop: of all samples, the mean over seeds, positive where worse; None where the
    damaged model has no value. need: samples to the target; fewest, most: by the ends of the
    intervals.
    """

    metric: str
    drop: float | None
    rates: tuple[Rate, ...]
    need: Need
    fewest: Need
    most: Need


@dataclass(frozen=True)
class Damaged:
    """One damage. refused: why its runs end in an error before any metric; else empty."""

    name: str
    about: str
    refused: str
    sights: tuple[Sight, ...]


@dataclass(frozen=True)
class WorldFigures:
    """One world. samples: played. seeds: of undamaged and of damaged runs. draws: of each size."""

    name: str
    command: str
    machine: str
    seconds: float
    samples: int
    seeds: tuple[int, ...]
    damaged_seeds: tuple[int, ...]
    draws: int
    metrics: tuple[Metric, ...]
    damages: tuple[Damaged, ...]


@dataclass(frozen=True)
class Document:
    """Everything. alpha: of every metric. target: the power that costs are stated for."""

    alpha: float
    target: float
    worlds: tuple[WorldFigures, ...]


def metrics_of(world: World, undamaged: Mapping[int, Sequence[Played]]) -> Iterator[Metric]:
    """Every metric of the world's suites. undamaged: by seed, one for each suite."""
    first = undamaged[world.seeds[0]]
    for setting, played in zip(world.settings, first, strict=True):
        for run in played.metrics.values():
            yield Metric(setting.name, run.name, run.label, run.calls)


def sights(
    world: World,
    undamaged: Mapping[int, Sequence[Played]],
    damaged: Mapping[int, Sequence[Played]],
    samples: Mapping[str, int],
) -> Iterator[Sight]:
    """What every metric sees of one damage.

    undamaged, damaged: by seed, one run for each suite. samples: played, by suite.
    """
    for place, setting in enumerate(world.settings):
        for name in undamaged[world.seeds[0]][place].metrics:
            before = [undamaged[seed][place].metrics[name] for seed in world.seeds]
            now = [damaged[seed][place].metrics.get(name) for seed in world.damaged_seeds]
            yield _sight(f"{setting.name}: {name}", before, now, samples[setting.name])


def _sight(
    key: str, before: Sequence[MetricRun], now: Sequence[MetricRun | None], samples: int
) -> Sight:
    sign = 1 if before[0].higher_is_better else -1
    rates = []
    for size in before[0].values:
        undamaged = [run.values[size] for run in before]
        # A run without a value fails, so it has dropped below everything.
        values = [
            np.full_like(undamaged[0], -sign * np.inf)
            if run is None
            else _worst_where_missing(run.values[size], sign)
            for run in now
        ]
        threshold = calibrate(drops_between(undamaged, undamaged, sign))
        rate = alarm_rate(threshold, drops_between(undamaged, values, sign))
        low, high = bounds(rate, samples / size * min(len(now), len(before)))
        rates.append(Rate(size, rate, low, high, threshold.drop))
    whole = [run.value for run in before if run.value is not None]
    left = [run.value for run in now if run is not None and run.value is not None]
    return Sight(
        metric=key,
        drop=float(sign * (np.mean(whole) - np.mean(left))) if whole and left else None,
        rates=tuple(rates),
        need=samples_needed({rate.samples: rate.rate for rate in rates}),
        fewest=samples_needed({rate.samples: rate.high for rate in rates}),
        most=samples_needed({rate.samples: rate.low for rate in rates}),
    )


def _worst_where_missing(values: Array, sign: int) -> Array:
    return np.where(np.isnan(values), -sign * np.inf, values)


def merged(old: Document | None, new: Iterable[WorldFigures]) -> list[WorldFigures]:
    """The worlds of both, new figures in place of old ones."""
    worlds = {} if old is None else {world.name: world for world in old.worlds}
    worlds |= {world.name: world for world in new}
    return list(worlds.values())


def write(document: Document, path: Path) -> None:
    """Write the figures as JSON, with a line for each metric of a damage."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(document).replace(b'{"metric":', b'\n{"metric":') + b"\n")


def read(path: Path) -> Document:
    """Read what `write` wrote. Raises ValueError naming the file for anything else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Document)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}; measure the figures again") from error
