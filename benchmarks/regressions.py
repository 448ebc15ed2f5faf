"""What the gate sees of deliberate regressions, and of faults in files.

    OMP_NUM_THREADS=1 python benchmarks/regressions.py            # three quarters of an hour
    OMP_NUM_THREADS=1 python benchmarks/regressions.py --samples 2 pruned quantized=2 nan

Each of `reference/regress.py`, and some in other amounts, is made of the best describer and gated
against it by the drift of `suites/shapes`: every case of it, with the suite's own gate. Prints
Markdown tables; --write puts them into benchmarks/results/regressions.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "reference")]  # run by its path, and as its scripts are run

from damage import DAMAGES  # noqa: E402
from regress import REGRESSIONS, regress  # noqa: E402

from benchmarks.gated import (  # noqa: E402
    BEST,
    DRIFT,
    Bench,
    Gated,
    exact_captions,
    fill_in,
    table,
)

PAGE = _ROOT / "benchmarks" / "results" / "regressions.md"

HEAD = (
    "",
    "what it is",
    "amount",
    "exact captions",
    "GC@3",
    "its verdict",
    "truth F1",
    "verdict on it",
    "cases regressed",
    "run",
)

MORE_AMOUNTS = {
    "quantized": (3, 2),
    "pruned": (0.4, 0.5),
    "lora-scale": (1, 2),
    "stale-projector": (600, 800),
    "cropped": (68,),
    "cut-short": (24,),
    "repetition-penalty": (3,),
}
"""Beside the default ones."""


def variants(names: Sequence[str]) -> list[tuple[str, float | None]]:
    """What is to be made: those of `NAME` or `NAME=AMOUNT` that are given, else all."""
    if names:
        split = [name.partition("=") for name in names]
        return [(name, float(amount) if amount else None) for name, _, amount in split]
    return [
        (name, amount)
        for name, regression in REGRESSIONS.items()
        for amount in (regression.amount, *MORE_AMOUNTS.get(name, ()))
    ]


def row(name: str, amount: float | None, exact: float | None, gated: Gated) -> tuple[str, ...]:
    """A line of the tables."""
    shown = REGRESSIONS[name].amount if amount is None else amount
    return (
        f"`{name}`",
        REGRESSIONS[name].about,
        "" if shown is None else f"{shown:g}",
        "-" if exact is None else f"{exact:.0%}",
        "-" if gated.value is None else f"{gated.value:.3f}",
        gated.verdict,
        "-" if gated.truth is None else f"{gated.truth:.3f}",
        gated.truth_verdict or "-",
        str(len(gated.regressed)),
        "fails" if gated.code else "passes",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Make, gate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME[=AMOUNT]", help="of these only")
    parser.add_argument("--of", type=Path, default=BEST, help="the describer to regress")
    parser.add_argument("--generator", help="instead of the suite's")
    parser.add_argument("--encoder", help="instead of the suite's")
    parser.add_argument("--samples", type=int, default=24, help="of each category; 24, all")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    rows: dict[bool, list[tuple[str, ...]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), DRIFT, options.samples, options.generator, options.encoder)
        bench.accept(options.of)
        for name, amount in variants(options.names):
            copy = Path(folder) / (name if amount is None else f"{name}-{amount:g}")
            regress(name, options.of, copy, amount)
            gated = bench.gate(copy)
            cells = row(name, amount, exact_captions(copy, options.samples), gated)
            rows[name in DAMAGES].append(cells)
            print(*cells, sep=" | ", file=sys.stderr, flush=True)
    how = (
        f"`{shlex.join(['python', 'benchmarks/regressions.py', *sys.argv[1:]])}`: "
        f"{time.perf_counter() - started:.0f} s on {os.cpu_count()} cores of {platform.machine()}, "
        f"{options.samples} samples of each category.\n"
    )
    figures = {
        "regressions": table(HEAD, rows[False]) + f"\n{how}",
        "faults": table(HEAD, rows[True]),
    }
    for name, text in figures.items():
        print(text)
        if options.write:
            fill_in(PAGE, name, text)


if __name__ == "__main__":
    main()
