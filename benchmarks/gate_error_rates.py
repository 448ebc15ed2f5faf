"""Error rates of the gate, measured: false failures, false passes, detection, samples used.

Scores are simulated (normal, skewed, bounded, binary, clustered), and drawn from chains of the
embedded world; bounds, verdicts, shares of alpha, looks and Holm's procedure are the gate's own.
Beside them stand the thresholds without statistics that CI gates usually have.

    OMP_NUM_THREADS=1 python benchmarks/gate_error_rates.py           # under an hour, one core
    OMP_NUM_THREADS=1 python benchmarks/gate_error_rates.py --quick   # under a minute

Prints Markdown tables. A promise is broken where a rate exceeds the alpha that was promised by more
than 3 standard errors: it is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

if __package__ in (
    None,
    "",
):  # Run by its path, Python looks beside the script for what it imports.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.error_rates import (
    collapsing,
    embedded,
    labelled,
    looked_again,
    simulated,
    trainings,
)
from benchmarks.error_rates.figures import Figure
from benchmarks.error_rates.simulated import Settings
from benchmarks.error_rates.tables import LOOKED, fill, report
from benchmarks.error_rates.trainings import Trainings
from benchmarks.error_rates.worlds import (
    BINARY,
    BOUNDED,
    CLUSTERED,
    HARD,
    LOSSES,
    NORMAL,
    WORLDS,
    World,
)
from pytest_cepbench.gate.statistics import look_sizes

PARTS = ("worlds", "hard", "chains", "sets", "trainings", "labels", "looks")
"""Simulated worlds, those that are hard on the bounds, chains of the embedded world, sets
of their ends, whole trainings, win rates of which people labelled a part, and ways of looking
again."""

QUICK = Settings(runs=100, sizes=(24, 60, 192))

_EARLIER = Path(__file__).parent / "results" / "gate_power_before.json"
"""`--power` of the version before the bounds of few loud categories and heavy clusters."""

_SHARES = (0.02, 0.05, 0.1, 0.2)
_POOLED_AT = (60, 192)
_PLAYED, _PLAYED_QUICK = 100, 20
_EMBEDDED_QUICK = (24, 60)
_SETS_AT = (24, 60, 192)  # larger sets take minutes for each figure
_MANY_AT = 60
_LOOKED_LESS = 4  # every look of every case is judged: a quarter of the runs take as long
_TRAININGS = 0.4  # of the runs: a training has up to 200 gates
_HARD_QUICK = tuple(HARD[i] for i in (0, 5, 9, 14, 15, 17))
"""One of each: loud categories, heavy clusters, few samples, ties, jitter, chosen baselines."""
_MANY_OF = ("embedded GC@3", "embedded GC@3, 8 categories", "embedded failures")

_BY_SETTINGS = {
    "labels": labelled.figures,
    "looks": looked_again.figures,
}


def measure(settings: Settings, parts: Collection[str], *, quick: bool) -> Iterator[Figure]:
    """Every figure, in the order of the tables; chains, which can fail, are played first."""
    played = embedded.populations(_PLAYED_QUICK if quick else _PLAYED) if "chains" in parts else []
    sets = collapsing.end_sets(_PLAYED_QUICK if quick else _PLAYED) if "sets" in parts else []
    if "worlds" in parts:
        yield from _simulated(settings, quick=quick)
    if "hard" in parts:
        for row in _HARD_QUICK if quick else HARD:
            yield from simulated.hard(row, settings)
    for part, figures in _BY_SETTINGS.items():
        if part in parts:
            yield from figures(settings, quick=quick)
    if "trainings" in parts:
        yield from trainings.figures(_trainings(settings, quick=quick), quick=quick)
    yield from _embedded(played, settings, quick=quick)
    for own in sets:
        for n in _EMBEDDED_QUICK if quick else _SETS_AT:
            yield from collapsing.figures(own, n, settings)


def _embedded(
    played: Sequence[embedded.Population], settings: Settings, *, quick: bool
) -> Iterator[Figure]:
    for population in played:
        for n in _EMBEDDED_QUICK if quick else settings.sizes:
            many = n == _MANY_AT and population.name in _MANY_OF
            yield from embedded.figures(population, n, LOOKED[-1] if many else 1, settings)


def _simulated(settings: Settings, *, quick: bool) -> Iterator[Figure]:
    for world in WORLDS:
        for n in settings.sizes:
            yield from simulated.errors(world, n, settings)
            yield from simulated.agreement(world, n, settings)
            yield from simulated.detection(world, n, settings)
            yield from simulated.plain_thresholds(world, n, settings)
            looked = _looked(world, quick=quick)
            if looked and len(look_sizes(n)) > 1:
                fewer = replace(settings, cases=looked, runs=max(2, settings.runs // _LOOKED_LESS))
                yield from simulated.looks(world, n, fewer)
    for world in (NORMAL, LOSSES, BINARY):
        for n in _POOLED_AT if not quick else ():
            yield from simulated.pooled(world, n, settings)
    for share in _SHARES:
        for n in settings.sizes if not quick else ():
            yield from simulated.unseen(share, n, settings)


def _trainings(settings: Settings, *, quick: bool) -> Trainings:
    runs = max(2, int(settings.runs * _TRAININGS))
    usual = Trainings(runs, alpha=settings.alpha, tolerance=settings.tolerance, seed=settings.seed)
    return replace(usual, lengths=(40,), sizes=(60, 192)) if quick else usual


def _looked(world: World, *, quick: bool) -> tuple[int, ...]:
    """Cases of the runs of a world that look again; exact bounds take too long for many."""
    if world in ((NORMAL, LOSSES) if quick else (NORMAL, LOSSES, BINARY, CLUSTERED)):
        return LOOKED
    return () if quick or world is not BOUNDED else LOOKED[:1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether a promise is broken: 0 if none is, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few runs, no n of 1284")
    parser.add_argument("--runs", type=int, help="simulated runs of each setting; 1000, quick 100")
    parser.add_argument("--power", type=Path, help="measure power alone, and write it to this file")
    parser.add_argument("--part", choices=PARTS, action="append", help="of the worlds; all")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--measured", type=Path, nargs="+", metavar="JSON", help="figures instead of measuring"
    )
    parser.add_argument("--page", type=Path, help="replace the tables of this page")
    options = parser.parse_args(arguments)
    settings = QUICK if options.quick else Settings()
    if options.runs is not None:
        if options.runs < 2:
            parser.error(f"--runs: a standard error needs at least 2 runs, got {options.runs}")
        settings = replace(settings, runs=options.runs)
    if options.power is not None:
        _write(options.power, {"figures": _plain(reported(power(settings)))})
        return 0
    started = time.process_time()
    if options.measured:
        figures = [figure for path in options.measured for figure in _read(path)]
    else:
        figures = list(reported(measure(settings, options.part or PARTS, quick=options.quick)))
    broken = [figure for figure in figures if figure.broken]
    tables = report(figures, _read(_EARLIER), settings)
    print("\n".join(f"## {head}\n\n{text}\n" for head, text in tables.items()))
    seconds = time.process_time() - started
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}; {seconds:.0f} CPU seconds\n")
    if options.json is not None:
        document = {
            "machine": machine,
            "seconds": seconds,
            "settings": asdict(settings),
            "figures": _plain(figures),
        }
        _write(options.json, document)
    if options.page is not None:
        page = fill(options.page.read_text(encoding="utf-8"), tables)
        options.page.write_text(page, encoding="utf-8")
    promised = sum(figure.promise is not None for figure in figures)
    print(f"{promised} promises measured, {len(broken)} broken")
    for figure in broken:
        print(f"  broken: {figure}")
    return 1 if broken else 0


def power(settings: Settings) -> Iterator[Figure]:
    """What is detected, and what passes without drift, in the worlds without hardships."""
    for world in WORLDS:
        for n in settings.sizes:
            yield from simulated.detection(world, n, settings)


def _plain(figures: Iterable[Figure]) -> list[dict[str, object]]:
    return [asdict(figure) | {"broken": figure.broken} for figure in figures]


def _read(path: Path) -> list[Figure]:
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return [Figure(**{k: v for k, v in figure.items() if k != "broken"}) for figure in figures]


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def reported(figures: Iterator[Figure]) -> Iterator[Figure]:
    """The same figures; says on standard error where the measuring has got to."""
    last = None
    for figure in figures:
        if (here := (figure.world, figure.n)) != last:
            print(f"{figure.world}, n = {figure.n}", file=sys.stderr, flush=True)
            last = here
        yield figure


if __name__ == "__main__":
    sys.exit(main())
