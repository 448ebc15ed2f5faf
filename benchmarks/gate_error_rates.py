"""Error rates of the gate, measured: false failures, false passes, power beside a t test.

Differences are simulated; the test, bounds, verdicts, shares of alpha and looks are the gate's own.

    OMP_NUM_THREADS=1 python benchmarks/gate_error_rates.py          # ten CPU minutes
    OMP_NUM_THREADS=1 python benchmarks/gate_error_rates.py --quick  # under a minute

Prints Markdown tables. A promise is broken where a rate exceeds the alpha that was promised by more
than 3 standard errors, where the power in a layout of the embedded suites is below nine tenths of
that of a t test by as much, or where people are told of a power that is off by more than 5 points:
it is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from timeit import repeat

if not __package__:  # run by its path, Python looks beside the script for what it imports
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.error_rates import errors, power, trainings
from benchmarks.error_rates.report import Promises
from benchmarks.error_rates.verdicts import LEVELS, measured
from benchmarks.error_rates.worlds import SD, one_category
from benchmarks.pages import Row, Rows, fill_in, largest, number, table
from pytest_cepbench.gate import Policy, judge, record_of

RUNS, QUICK = 4000, 100
"""Simulated runs of each setting of the false failures and false passes."""


@dataclass(frozen=True)
class Part:
    """A table of the page.

    name: of the mark before it there.
    head: its columns.
    rows: of so many runs, to whom promises are told.
    fewer: what takes longer is simulated so many times less often.
    shown: rows of the page, which leaves out those that say the same; all are printed.
    """

    name: str
    head: Sequence[str]
    rows: Callable[[int, Promises], Iterable[Row]]
    fewer: int = 1
    shown: Callable[[Rows], Rows] = list


def speed(_: int, __: Promises) -> Iterator[list[str]]:
    """Rows of the CPU seconds that `judge` takes, the least of five times."""
    from scipy.stats import ttest_rel

    for cases, units, level, goal in ((1, 1284, LEVELS[1], "0.15"), (40, 24, 0.05 / 40, "0.3")):
        generator = np.random.default_rng(units)
        before = generator.normal(0.6, 0.1, units).round(6)
        now = (before - 0.01 + generator.normal(0, SD, units)).round(6)
        layout = one_category(units)
        baseline = record_of(measured(before, layout, "baseline"))
        candidate, policy = measured(now, layout, "candidate"), Policy(alpha=level)

        five = partial(repeat, timer=time.process_time, repeat=5)
        seconds = min(five(partial(judge, candidate, baseline, policy), number=cases))
        one = min(five(partial(ttest_rel, now, before), number=1))
        name = f"{cases} of {units} units at 0.05 / {round(0.05 / level)}"
        yield [name, f"{seconds:.3f}", f"{seconds / one / cases:.0f} each", goal]


_KINDS = ("others normal", "others lose")
_TIES = [f"{what}, {n}, {kind}" for kind in _KINDS for n in (60, 192) for what in ("held", "false")]


def _promised(*columns: int) -> Callable[[Row], float]:
    """The largest figure of these columns that carries a promise."""
    return lambda row: max(0.0, *(number(row[c]) for c in columns if "(" not in row[c]))


def _hard(row: Row) -> float:
    """The promised rates of one case, beside which others count by the 2.75th part."""
    return max(_promised(2, 6)(row), number(row[4]) / 2.75, number(row[6]) / 2.75)


def _short(row: Row) -> float:
    """How far the power at a drop of two tolerances lies below that of a t test."""
    ours, theirs = map(float, row[2].split("/"))
    return theirs - ours


def _off(row: Row) -> float:
    """Points by which the worst prediction of a row is off."""
    pairs = [cell.removesuffix(" (off)").split(", ") for cell in row[3:]]
    return max(abs(float(said) - float(found)) for said, found in pairs)


_CASES, _LOOKS = _promised(2, 6), _promised(1, 3)  # columns of a run of one case
_SERIES_HEAD = ("differences", "units", "at 0.0036", "at 0.0006")

PARTS = (
    Part("worlds", ("scores", "units", *errors.HEAD), errors.worlds, 1, largest(4, _CASES)),
    Part("hard", ("scores, hard", "units", *errors.HEAD), errors.hard, 1, largest(10, _hard)),
    Part("chains", ("chains", "units", *errors.HEAD), errors.chains, 2, largest(1, _CASES)),
    Part("series", _SERIES_HEAD, errors.series, 1, largest(2, _promised(2, 3))),
    Part("cliff", ("ties", *_TIES), errors.cliff, 8),
    Part("looks", ("scores", *errors.LOOKS_HEAD), errors.looks_of, 4, largest(2, _LOOKS)),
    Part("power", ("scores", "units", *power.HEAD), power.power, 10, largest(4, _short)),
    # Those of the least power at a drop of two tolerances.
    Part("embedded", power.LAYOUTS_HEAD, power.embedded, 10, largest(4, lambda r: -number(r[2]))),
    Part("told", power.TOLD_HEAD, power.told, 10, largest(4, _off)),
    # Those that single gates stop most.
    Part("trainings", trainings.HEAD, trainings.good, 20, largest(2, lambda r: number(r[2]))),
    Part("delays", trainings.LATE_HEAD, trainings.bad, 20),
    Part("speed", ("cases", "seconds", "in paired t tests", "goal, s"), speed),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether a promise is broken: 0 if none is, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [part.name for part in PARTS]
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} runs of each setting")
    parser.add_argument("--runs", type=int, help=f"simulated runs of each setting; {RUNS}")
    parser.add_argument("--part", choices=names, action="append", help="of the tables; all")
    parser.add_argument("--page", type=Path, help="replace the tables of this page")
    options = parser.parse_args(arguments)
    runs = options.runs if options.runs is not None else QUICK if options.quick else RUNS
    if runs < 2:
        parser.error(f"--runs: a standard error needs at least 2 runs, got {runs}")
    started = time.process_time()
    promises, tables = Promises(), {}
    for part in PARTS:
        if options.part and part.name not in options.part:
            continue
        rows = list(part.rows(max(2, runs // part.fewer), promises))
        tables[part.name] = table(part.head, part.shown(rows))
        print(f"<!-- {part.name} -->\n\n{table(part.head, rows)}\n", flush=True)
        took = time.process_time() - started
        print(f"{part.name}: {took:.0f} s", file=sys.stderr, flush=True)
    if options.page is not None:
        fill_in(options.page, tables)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}; {runs} runs, {time.process_time() - started:.0f} CPU seconds")
    print(f"{promises.measured} promises measured, {len(promises.broken)} broken")
    for sentence in promises.broken:
        print(f"  broken: {sentence}")
    return 1 if promises.broken else 0


if __name__ == "__main__":
    sys.exit(main())
