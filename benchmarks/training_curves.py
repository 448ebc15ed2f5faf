"""Metrics against training, and against the truth that only a generated world knows.

Every describer checkpoint of `reference/checkpoints` is played with the best generator, and every
generator with the best describer, through the three suites of `suites/shapes` by the runs that gate
there. Of the very same chains, each description is read back as the scene it tells and each drawing
as the scene it shows: so every metric stands beside what was really kept.

    # the page, files and plots
    OMP_NUM_THREADS=1 python benchmarks/training_curves.py --jobs 2 --write
    # ends of the series, few samples
    OMP_NUM_THREADS=1 python benchmarks/training_curves.py --quick
    # page and plots from the JSON
    python benchmarks/training_curves.py --read --write

Prints Markdown tables. --write puts them into benchmarks/results/training-curves.md between its
marks, the figures into benchmarks/results/training_curves.json and the plots into
benchmarks/results/plots/. What is played is kept in the store that pytest uses in this repository:
what either has computed, the other does not compute again. With
`--json benchmarks/results/training_curves_shipped.json`, --write fills in the tables of the page
that are about the shipped checkpoints alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

if __package__ in (
    None,
    "",
):  # Run by its path, Python looks beside the script for what it imports.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.curves.figures import Document, read, write
from benchmarks.curves.lineups import Pair, Series, find_series, perfect_pair
from benchmarks.curves.making import make_series
from benchmarks.curves.playing import Played, Sampling, play
from benchmarks.curves.resampling import CONFIDENCE
from benchmarks.curves.tables import fill_in, fill_in_shipped, report
from pytest_cepbench.errors import CepError
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool

_ROOT = Path(__file__).resolve().parents[1]

FILES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "suite.toml": {
        "truth1": {"kind": "facts", "at": 1, "parts": "overall"},
        "retrieval": {"parts": "overall"},
        "diversity": {},
        "repetition": {"parts": "overall"},
        "length": {"parts": "overall"},
    },
    "drift.toml": {},
    "tasks.toml": {},
}
"""Each file of the suites, and the metrics that are measured on its chains beside its cases."""

QUICK = Sampling(samples=2, draws=100)

PAGE = _ROOT / "benchmarks" / "results" / "training-curves.md"

RESULTS = _ROOT / "benchmarks" / "results" / "training_curves.json"

SHIPPED = _ROOT / "benchmarks" / "results" / "training_curves_shipped.json"
"""Figures of the shipped checkpoints alone, by all metrics of `FILES`."""

PLOTS = _ROOT / "benchmarks" / "results" / "plots"

_PACKAGES = ("torch", "transformers", "diffusers", "numpy")


def measure(
    folder: Path, suites: Path, store: Path, sampling: Sampling, jobs: int, *, quick: bool
) -> tuple[list[Series], dict[Pair, list[Played]]]:
    """Both series, and what every pair of them did in each suite. jobs: processes that play."""
    series = find_series(folder, (0, -1) if quick else None)
    pairs = dict.fromkeys((*(pair for each in series for pair in each.pairs), perfect_pair()))
    work = [(pair, suites, store, sampling) for pair in pairs]
    if jobs == 1:
        played = [_play(*job) for job in work]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            played = list(pool.map(_play, *zip(*work, strict=True)))
    return series, dict(zip(pairs, played, strict=True))


def _play(pair: Pair, suites: Path, folder: Path, sampling: Sampling) -> list[Played]:
    started = time.perf_counter()
    with Store(folder) as store:
        roster = ModelPool(store, threads=1)
        played = [
            play(pair, suites / name, roster, sampling, beside) for name, beside in FILES.items()
        ]
    who = "perfect pair" if pair.steps is None else "describer {}, generator {}".format(*pair.steps)
    print(f"{who}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return played


def document(
    series: Sequence[Series], played: dict[Pair, list[Played]], sampling: Sampling, command: str
) -> Document:
    """Everything that the figures say; the caller adds `seconds`."""
    perfect = played[perfect_pair()]
    return Document(
        command=command,
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        versions={name: version(name) for name in _PACKAGES},
        seconds=0.0,
        samples={run.suite: len(run.samples) for run in perfect},
        draws=sampling.draws,
        confidence=CONFIDENCE,
        series=tuple(make_series(each, played, perfect) for each in series),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or read, print, write what was asked for; 2 where something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ends of the series, 2 samples each")
    parser.add_argument("--read", action="store_true", help="play nothing: take the JSON file")
    parser.add_argument("--write", action="store_true", help="write the JSON file, page and plots")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play; 1")
    parser.add_argument("--samples", type=int, help="most of each category; the suites' own")
    parser.add_argument("--store", type=Path, default=_ROOT / ".cepbench" / "store")
    parser.add_argument("--checkpoints", type=Path, default=_ROOT / "reference" / "checkpoints")
    parser.add_argument("--suites", type=Path, default=_ROOT / "suites" / "shapes")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures are kept")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs: at least one process has to play, got {options.jobs}")
    sampling = QUICK if options.quick else Sampling()
    if options.samples is not None:
        sampling = replace(sampling, samples=options.samples)
    words = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "benchmarks/training_curves.py", *words])
    try:
        figures = read(options.json) if options.read else _measured(options, sampling, command)
    except (CepError, ValueError, OSError) as error:
        print(f"training_curves: {error}", file=sys.stderr)
        return 2
    print(report(figures))
    if options.write:
        _write(figures, options)
    return 0


def _measured(options: argparse.Namespace, sampling: Sampling, command: str) -> Document:
    started = time.perf_counter()
    series, played = measure(
        options.checkpoints, options.suites, options.store, sampling, options.jobs,
        quick=options.quick,
    )  # fmt: skip
    figures = document(series, played, sampling, command)
    return replace(figures, seconds=round(time.perf_counter() - started, 1))


def _write(figures: Document, options: argparse.Namespace) -> None:
    """The page and plots belong to the published figures: those kept elsewhere change neither."""
    if not options.read:
        write(figures, options.json)
    if options.json.resolve() == RESULTS:
        from benchmarks.curves.plots import draw_all

        PAGE.write_text(fill_in(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
        draw_all(figures, PLOTS)
    elif options.json.resolve() == SHIPPED:
        page = fill_in_shipped(PAGE.read_text(encoding="utf-8"), figures)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
