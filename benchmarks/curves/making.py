"""From what was played to the figures of a series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.curves.analysis import concordance, disordered, falls, saturation, tau
from benchmarks.curves.figures import HIGH, Beside, Course, Kept, SeriesFigures
from benchmarks.curves.lineups import Pair, Role, Series
from benchmarks.curves.playing import Metric, Played, Reach
from benchmarks.curves.resampling import Array, Estimate, estimate, rounded
from benchmarks.curves.truth import ASPECTS

EXACT, OBJECTS, OWN = "exact", "objects", "own"

TOLERANCE = 0.01
"""Of a share of scenes or objects, as of the metrics."""

_TWINS = {"gc1": "sim"}
"""Metrics that are another one under a second name: same encoder, same chains."""

_GC = "gc"

_FIRST: Mapping[tuple[Role, str], int] = {
    ("describer", "image"): 1,
    ("describer", "text"): 2,
    ("generator", "text"): 1,
    ("generator", "image"): 2,
}
"""The generation at which a model under test first acts."""


@dataclass(frozen=True)
class _Column:
    """Numbers of one kind over the checkpoints, (m,), and over the draws, (m, B); NaN: none."""

    values: Array
    drawn: Array

    @property
    def points(self) -> tuple[Estimate | None, ...]:
        """Each number with its interval."""
        return tuple(
            estimate(value, drawn) if np.isfinite(value) else None
            for value, drawn in zip(self.values, self.drawn, strict=True)
        )


def make_series(
    series: Series, played: Mapping[Pair, Sequence[Played]], perfect: Sequence[Played]
) -> SeriesFigures:
    """All figures of a series. played: of each pair, its suites in the same order as `perfect`."""
    courses: list[Course] = []
    truths: list[Course] = []
    kept: list[Kept] = []
    beside: list[Beside] = []
    for number, best in enumerate(perfect):
        runs = [played[pair][number] for pair in series.pairs]
        courses += _courses(series, runs, best)
        truths += _truths(series, runs, best)
        kept += [_kept(runs, best, start) for start in best.truth]
        beside += _beside(series.steps, runs)
    return SeriesFigures(
        role=series.role,
        steps=series.steps,
        fixed=series.fixed,
        courses=tuple(courses),
        truths=tuple(truths),
        kept=tuple(kept),
        beside=tuple(beside),
        stopped=tuple(sum(run.stopped for run in played[pair]) for pair in series.pairs),
    )


def _courses(series: Series, runs: Sequence[Played], best: Played) -> Iterator[Course]:
    names = {metric.name for metric in best.metrics}
    columns = zip(*(run.metrics for run in runs), strict=True)
    for metrics, perfect in zip(columns, best.metrics, strict=True):
        if _TWINS.get(perfect.name) not in names:
            yield _course(series, runs, metrics, perfect.value)


def _course(
    series: Series, runs: Sequence[Played], metrics: Sequence[Metric], perfect: float | None
) -> Course:
    first = metrics[0]
    values = np.array([np.nan if metric.value is None else metric.value for metric in metrics])
    column = _Column(values, np.stack([metric.drawn for metric in metrics]))
    truths = {
        OWN: _truth(runs, _own(series.role, first.reach), EXACT),
        EXACT: _truth(runs, first.reach, EXACT),
        OBJECTS: _truth(runs, first.reach, OBJECTS),
    }
    course = _bare(runs[0].suite, first.name, first.label, first.reach, column, perfect)
    course = replace(
        course,
        higher_is_better=first.higher_is_better,
        tolerance=first.tolerance,
        why={
            step: metric.why
            for step, metric in zip(series.steps, metrics, strict=True)
            if metric.why
        },
        within={
            aspect: tuple(
                _within(run, metric, aspect) for run, metric in zip(runs, metrics, strict=True)
            )
            for aspect in (EXACT, OBJECTS)
            if first.scores is not None
        },
        kept={aspect: _whole(truths[aspect].points) for aspect in (EXACT, OBJECTS)},
    )  # fmt: skip
    return _judged(course, series.steps, column, truths)


def _truths(series: Series, runs: Sequence[Played], best: Played) -> Iterator[Course]:
    """The truth by itself: where the model under test first acts, and at the chains' ends."""
    end: Reach = tuple((start, kept.shape[1] - 1) for start, kept in best.truth.items())
    looked = [(OWN, _own(series.role, end), EXACT), *((aspect, end, aspect) for aspect in ASPECTS)]
    for name, reach, aspect in looked:
        column = _truth(runs, reach, aspect)
        perfect = rounded(_of_each(best, reach, aspect).mean())
        course = _bare(runs[0].suite, name, name, reach, column, perfect)
        yield _judged(course, series.steps, column, {})


def _bare(
    suite: str, name: str, label: str, reach: Reach, column: _Column, perfect: float | None
) -> Course:
    """A course of which nothing is judged yet."""
    return Course(
        suite=suite,
        name=name,
        label=label,
        higher_is_better=True,
        tolerance=TOLERANCE,
        reach=_named(reach),
        points=column.points,
        perfect=perfect,
    )


def _named(reach: Reach) -> str:
    """Such as "image-first 6"; the generations of one start together."""
    starts = dict.fromkeys(start for start, _ in reach)
    last = {start: sorted({g for name, g in reach if name == start}) for start in starts}
    return "; ".join(f"{start}-first {', '.join(map(str, own))}" for start, own in last.items())


def _judged(
    course: Course, steps: Sequence[int], column: _Column, truths: Mapping[str, _Column]
) -> Course:
    """With what its numbers say, where there is one for every checkpoint."""
    if not np.isfinite(column.values).all():
        return course
    sign = 1.0 if course.higher_is_better else -1.0
    values, drawn = sign * column.values, sign * column.drawn
    at = np.array(steps, dtype=np.float64)
    known = {"step": _Column(at, np.repeat(at[:, None], drawn.shape[1], axis=1)), **truths}
    return replace(
        course,
        ordered=bool((np.diff(values) >= 0).all()),
        falls=falls(steps, values, drawn),
        saturates=saturation(steps, values, drawn, course.tolerance),
        tau={name: tau(values, own.values, drawn, own.drawn) for name, own in known.items()},
        disordered=disordered(steps, values, truths[OBJECTS].values) if truths else (),
    )


def _within(run: Played, metric: Metric, aspect: str) -> Estimate | None:
    assert metric.scores is not None
    scores = metric.scores if metric.higher_is_better else -metric.scores
    return concordance(scores, _of_each(run, metric.reach, aspect), run.draws)


def _own(role: Role, reach: Reach) -> Reach:
    """Where the model under test first acts in the chains of a reach."""
    return tuple(dict.fromkeys((start, _FIRST[role, start]) for start, _ in reach))


def _truth(runs: Sequence[Played], reach: Reach, aspect: str) -> _Column:
    of_each = [_of_each(run, reach, aspect) for run in runs]
    drawn = [own[run.draws].mean(axis=1) for own, run in zip(of_each, runs, strict=True)]
    return _Column(np.array([own.mean() for own in of_each]), np.stack(drawn))


def _of_each(run: Played, reach: Reach, aspect: str) -> Array:
    """(n,) what each sample's chains keep, on average where the reach is over several."""
    where = ASPECTS.index(aspect)
    kept: Array = np.mean([run.truth[start][:, g, where] for start, g in reach], axis=0)
    return kept


def _kept(runs: Sequence[Played], best: Played, start: str) -> Kept:
    def rows(run: Played, aspect: int) -> tuple[float, ...]:
        (kept,) = (kept_of_start for name, kept_of_start in run.truth.items() if name == start)
        return tuple(map(rounded, kept[:, :, aspect].mean(axis=0)))

    return Kept(
        suite=best.suite,
        start=start,
        samples=len(best.samples),
        aspects={name: tuple(rows(run, at) for run in runs) for at, name in enumerate(ASPECTS)},
        perfect={name: rows(best, at) for at, name in enumerate(ASPECTS)},
    )


def _beside(steps: Sequence[int], runs: Sequence[Played]) -> Iterator[Beside]:
    """GC beside the truth, in the suite that has it; nothing in the others."""
    for step, run in zip(steps, runs, strict=True):
        for metric in run.metrics:
            if metric.name == _GC and metric.scores is not None and metric.value is not None:
                kept = {aspect: _of_each(run, metric.reach, aspect) for aspect in ASPECTS}
                high = metric.scores >= HIGH
                lost = high & (kept[EXACT] < 1)
                yield Beside(
                    step=step,
                    score=estimate(metric.value, metric.drawn),
                    kept={
                        aspect: estimate(own.mean(), own[run.draws].mean(axis=1))
                        for aspect, own in kept.items()
                    },
                    high=int(high.sum()),
                    lost=int(lost.sum()),
                    worst=rounded(kept[OBJECTS][lost].min()) if lost.any() else None,
                )


def _whole(points: tuple[Estimate | None, ...]) -> tuple[Estimate, ...]:
    return tuple(point for point in points if point is not None)
