"""The figures of simulated scores: false failures, false passes, detection, looking again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.verdicts import (
    FAILS,
    PASSES,
    Cases,
    Hits,
    any_of_rows,
    found_at,
    found_by_holm,
    judged_whole,
    look_again,
)
from benchmarks.error_rates.worlds import Array, Hard, World, concentrated
from pytest_cepbench.gate import Policy, Verdict

_AT_ONCE = 1 << 21  # scores that are drawn at a time
HARD_NAMES = "hard: "
"""Before the names of worlds that are hard on the bounds: their table is their own."""

_CHECKED = 10  # cases of a setting that the whole gate judges as well


@dataclass(frozen=True)
class Settings:
    """How much is simulated.

    runs: of each setting. sizes: units of a case. cases: of a run, rising. alpha: of a run.
    tolerance: in the unit of the scores. seed: of all draws.
    """

    runs: int = 1000
    sizes: tuple[int, ...] = (24, 60, 192, 1284)
    cases: tuple[int, ...] = (1, 14, 40)
    alpha: float = 0.05
    tolerance: float = 0.01
    seed: int = 0

    @property
    def levels(self) -> list[float]:
        """Alpha of a case in a run of each number of cases."""
        return [self.alpha / m for m in self.cases]


def draws(
    world: World, n: int, drift: float, cases: int, settings: Settings
) -> Iterator[tuple[Array, Array]]:
    """Scores before and now, of as many runs as memory should hold at a time.

    Each (runs, cases, n, seeds); together they are settings.runs runs.
    """
    name = [ord(letter) for letter in world.name]
    generator = np.random.default_rng([settings.seed, *name, n, round(drift * 1e6), cases])
    at_once = max(1, _AT_ONCE // (cases * n * world.seeds))
    for done in range(0, settings.runs, at_once):
        runs = min(at_once, settings.runs - done)
        yield world.draw(generator, (runs, cases, n, world.seeds), drift)


def any_of_run(hits: Hits, world: World, m: int) -> Hits:
    """Whether any case of a run was hit, for runs of m cases. hits: (runs, cases).

    Independent cases are dealt out anew, so that smaller runs are the more; correlated ones stay.
    """
    if world.correlated:
        return any_of_rows(hits[:, :m])
    flat = hits.ravel()
    return any_of_rows(flat[: len(flat) // m * m].reshape(-1, m))


def errors(world: World, n: int, settings: Settings) -> Iterator[Figure]:
    """False failures without drift, and false passes at a drift of the tolerance.

    With no tolerance at all the regression gate has nothing but its bound: the hardest it can have.
    """
    yield from _false_failures(world, n, settings)
    yield from _false_passes(world, n, settings)


def _false_failures(world: World, n: int, settings: Settings) -> Iterator[Figure]:
    tolerances = (settings.tolerance, 0.0)
    yield from _errors(world, n, settings, 0.0, tolerances, "false failures")


def _false_passes(world: World, n: int, settings: Settings) -> Iterator[Figure]:
    tolerance = settings.tolerance
    yield from _errors(world, n, settings, tolerance, (tolerance,), "false passes")


def _errors(
    world: World,
    n: int,
    settings: Settings,
    drift: float,
    tolerances: Sequence[float],
    what: str,
) -> Iterator[Figure]:
    wanted, rule = (PASSES, "noninferiority") if drift else (FAILS, "regression")
    most = max(settings.cases)
    parts = []
    for before, now in draws(world, n, drift, most, settings):
        hits_by_key = found_at(Cases.of(world, before, now), settings.levels, tolerances, wanted)
        parts.append({key: hits.reshape(-1, most) for key, hits in hits_by_key.items()})
    for tolerance in tolerances:
        for m, level in zip(settings.cases, settings.levels, strict=True):
            hits = np.concatenate([part[level, tolerance] for part in parts])
            cell = Cell(rule, world.name, n, m, drift, tolerance)
            yield cell.rate(what, any_of_run(hits, world, m), settings.alpha)
            if m > 1 and not world.correlated:
                yield cell.rate(f"{what} of a case", hits.ravel(), level)


def hard(row: Hard, settings: Settings) -> Iterator[Figure]:
    """Both errors of a world that is hard on the bounds, as its row; no promise is made there."""
    for world, rates, promised in (
        (row.failures, _false_failures, row.fails_promised),
        (row.passes, _false_passes, row.passes_promised),
    ):
        for figure in rates(world, row.n, settings) if world is not None else ():
            promise = figure.promise if promised else None
            yield replace(figure, world=f"{HARD_NAMES}{row.name}", promise=promise)


def agreement(world: World, n: int, settings: Settings) -> Iterator[Figure]:
    """Cases in which the whole gate, from scores to verdict, says other than the figures count."""
    few = replace(settings, runs=_CHECKED)
    differ = []
    for before, now in draws(world, n, settings.tolerance, 1, few):
        cases = Cases.of(world, before, now)
        for case in range(len(cases.values)):
            level = settings.levels[case % len(settings.levels)]
            policy = Policy(tolerance=settings.tolerance, alpha=level)
            whole = judged_whole(before[case, 0], now[case, 0], policy, shares=world.shares)
            differ.append(whole is not cases.verdict(case, level, settings.tolerance))
    cell = Cell("judge()", world.name, n, 1, settings.tolerance, settings.tolerance)
    yield cell.rate("other verdicts", np.array(differ), 0.0)


def detection(world: World, n: int, settings: Settings) -> Iterator[Figure]:
    """How often a case of m is found that drifts, and how often one without drift passes for sure.

    The first is how often the regression gate fails a run in which one case drifts, by that case.
    """
    for times in (0, 1, 2, 4):
        drift = times * settings.tolerance
        wanted, what, rule = (
            (FAILS, "detected", "regression") if times else (PASSES, "passed", "noninferiority")
        )
        parts = [
            found_at(Cases.of(world, before, now), settings.levels, [settings.tolerance], wanted)
            for before, now in draws(world, n, drift, 1, settings)
        ]
        for m, level in zip(settings.cases, settings.levels, strict=True):
            hits = np.concatenate([part[level, settings.tolerance] for part in parts])
            cell = Cell(rule, world.name, n, m, drift, settings.tolerance)
            yield cell.rate(what, hits)


def plain_thresholds(world: World, n: int, settings: Settings) -> Iterator[Figure]:
    """What CI gates usually have: fail where the mean has dropped by more than the tolerance.

    Paired: candidate and baseline on the same samples. Unpaired: each on samples of its own.
    """
    most = max(settings.cases)
    for times in (0, 1, 2, 4):
        drift = times * settings.tolerance
        cases = 1 if times else most
        again = replace(settings, seed=settings.seed + 1)
        paired, unpaired = [], []
        for (before, now), (other, _) in zip(
            draws(world, n, drift, cases, settings),
            draws(world, n, drift, cases, again),
            strict=True,
        ):
            new = now.mean((-1, -2))
            paired.append(new - before.mean((-1, -2)) < -settings.tolerance)
            unpaired.append(new - other.mean((-1, -2)) < -settings.tolerance)
        for rule, parts in (("paired threshold", paired), ("unpaired threshold", unpaired)):
            hits = np.concatenate(parts)
            for m in settings.cases if not times else (1,):
                cell = Cell(rule, world.name, n, m, drift, settings.tolerance)
                what = "detected" if times else "false failures"
                yield cell.rate(what, any_of_run(hits, world, m))


def looks(world: World, n: int, settings: Settings) -> Iterator[Figure]:
    """`--cep-inconclusive=more`: the same promises, how many units it takes, what it detects."""
    for m in settings.cases:
        level = settings.alpha / m
        for times in (0, 1, 2, 4):
            drift = times * settings.tolerance
            # Promises are on whole runs; where the drift is larger one case of them is enough.
            cases = m if times < 2 else 1
            parts = [
                look_again(Cases.of(world, before, now), level, settings.tolerance)
                for before, now in draws(world, n, drift, cases, settings)
            ]
            cell = Cell("more", world.name, n, m, drift, settings.tolerance)
            yield cell.mean("samples used", np.concatenate([part.used for part in parts]))
            fails = np.concatenate([part.are(FAILS) for part in parts]).reshape(-1, cases)
            passes = np.concatenate([part.are(PASSES) for part in parts]).reshape(-1, cases)
            if times == 0:
                yield cell.rate("false failures", any_of_rows(fails), settings.alpha)
                yield cell.rate("passed", passes.ravel())
            elif times == 1:
                yield cell.rate("false passes", any_of_rows(passes), settings.alpha)
            else:
                yield cell.rate("detected", fails.ravel())


def pooled(world: World, n: int, settings: Settings, m: int = 14) -> Iterator[Figure]:
    """Cases found by themselves and by the pooled verdict, where one drifts and where all do."""
    level = settings.alpha / m
    for times in (2, 4):
        drift = times * settings.tolerance
        for drifting, what in ((1, "one case drifts"), (m, "all cases drift")):
            alone, together = [], []
            still = draws(world, n, 0.0, m, settings)
            moved = draws(world, n, drift, m, settings)
            for (before, now), (old, new) in zip(still, moved, strict=True):
                before[:, :drifting], now[:, :drifting] = old[:, :drifting], new[:, :drifting]
                cases = Cases.of(world, before, now)
                for first in range(0, len(cases.values), m):
                    regressed = found_by_holm(
                        cases, range(first, first + m), settings.alpha, settings.tolerance
                    )
                    seen = [case for case in regressed if case < first + drifting]
                    by_itself = [
                        cases.verdict(case, level, settings.tolerance) is Verdict.REGRESSED
                        for case in seen
                    ]
                    together.append(len(seen) / drifting)
                    alone.append(sum(by_itself) / drifting)
            for rule, shares in (("regression", alone), ("Holm", together)):
                cell = Cell(rule, world.name, n, m, drift, settings.tolerance)
                yield cell.mean(f"found, {what}", np.array(shares))


def unseen(share: float, n: int, settings: Settings) -> Iterator[Figure]:
    """A drift of few samples: what passes falsely, and how many runs hold none of the samples."""
    world = World(f"drift in {share:.0%} of the samples", concentrated(share))
    tolerance = settings.tolerance
    parts = [
        found_at(Cases.of(world, before, now), settings.levels[:1], [tolerance], PASSES)
        for before, now in draws(world, n, tolerance, 1, settings)
    ]
    cell = Cell("noninferiority", world.name, n, 1, tolerance, tolerance)
    passed = np.concatenate([part[settings.levels[0], tolerance] for part in parts])
    yield cell.rate("false passes", passed)
    for times in (2, 4):
        drift = times * tolerance
        parts = [
            found_at(Cases.of(world, before, now), settings.levels[:1], [tolerance], FAILS)
            for before, now in draws(world, n, drift, 1, settings)
        ]
        cell = Cell("regression", world.name, n, 1, drift, tolerance)
        hits = np.concatenate([part[settings.levels[0], tolerance] for part in parts])
        yield cell.rate("detected", hits)
