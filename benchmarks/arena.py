r"""Figures of the arena: samples needed, error rates of the stopping rules, battles against scores,
time and memory.

    OMP_NUM_THREADS=1 python -m benchmarks.arena --json benchmarks/results/arena.json \
        --page benchmarks/results/arena.md
    OMP_NUM_THREADS=1 python -m benchmarks.arena --quick    # under a minute of CPU

Battles are simulated (judges that agree with people at .62 to .95, order effects of 0 to .9 logits,
ties of 0 to 60 %), and go through the gate's own bounds, looks and bets; runs of
`arena-instrument` are whole pytest processes. A promise is broken where a rate exceeds it by more
than 3 standard errors: it is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.arena_figures.figures import Figure
from benchmarks.arena_figures.power import needed, soft_needed
from benchmarks.arena_figures.rates import QUICK_RATES, RateSettings, rates
from benchmarks.arena_figures.runs import arena_runs, leaderboard_seconds
from benchmarks.arena_figures.scores import faults_seen
from benchmarks.arena_figures.soft_worlds import soft_worlds
from benchmarks.arena_figures.tables import (
    fill_page,
    leaderboard_line,
    needed_table,
    rates_by_design,
    rates_by_judge,
    rates_by_score,
    runs_table,
    seen_table,
    soft_table,
)
from benchmarks.arena_figures.worlds import worlds
from benchmarks.whole_runs import machine

_DROP = 0.1
"""Of people's win rate: either score's tolerance is what it shows of it."""

PARTS = ("runs", "power", "rates", "soft", "scores")


def measure(parts: Sequence[str], *, quick: bool) -> tuple[dict[str, str], dict[str, object], bool]:
    """Tables by the name of their place in the page, all figures, and whether promises are kept."""
    tables: dict[str, str] = {}
    figures: dict[str, object] = {}
    kept = True
    if "runs" in parts:  # first: processes that are started inherit this one's peak of memory
        with tempfile.TemporaryDirectory() as folder:
            asked = (4,) if quick else (24, 216)  # the second: 4,320 battles in both orders
            timed = [arena_runs(Path(folder), size, 1 if quick else 2) for size in asked]
        seconds = leaderboard_seconds()
        tables["runs"] = f"{runs_table(timed)}\n{leaderboard_line(seconds)}\n"
        figures["runs"] = [asdict(run) for run in timed]
        figures["leaderboard_seconds"] = seconds
        kept &= all(run.warm_inputs == run.warm_loads == 0 for run in timed)
    if "power" in parts:
        accuracies = (0.82, 0.95) if quick else (0.62, 0.71, 0.82, 0.9, 0.95)
        drops = (0.05, 0.1) if quick else (0.02, 0.05, 0.1)
        samples = list(needed(accuracies, drops, 60 if quick else 200))
        tables["samples needed"] = needed_table(samples)
        figures["needed"] = [asdict(row) for row in samples]
    if "rates" in parts:
        settings = QUICK_RATES if quick else RateSettings()
        measured = [figure for world in worlds(quick=quick) for figure in rates(world, settings)]
        broken = [figure for figure in measured if figure.broken]
        promised = sum(figure.promise is not None for figure in measured)
        tables["rates by design"] = rates_by_design(measured)
        tables["rates by judge"] = rates_by_judge(measured)
        tables["promises"] = f"{promised} promises measured, {len(broken)} broken\n"
        figures["settings"] = asdict(settings)
        figures["rates"] = [asdict(figure) for figure in measured]
        _tell_broken(broken)
        kept &= not broken
    if "soft" in parts:
        kept &= _measure_soft(tables, figures, quick=quick)
    if "scores" in parts:
        sizes = ((40,), 10, 4) if quick else ((100, 200), 400, 24)
        seen = list(faults_seen(*sizes))
        tables["battles and scores"] = seen_table(seen)
        figures["seen"] = [asdict(row) for row in seen]
    return tables, figures, kept


def _tell_broken(broken: Sequence[Figure]) -> None:
    for figure in broken:
        print(f"broken: {figure}", file=sys.stderr)


def _measure_soft(tables: dict[str, str], figures: dict[str, object], *, quick: bool) -> bool:
    """Soft scores beside verdicts. Returns whether all promises are kept."""
    accuracies, effects = ((0.82,), (0.9,)) if quick else ((0.62, 0.82, 0.95), (0.0, 0.9))
    confidences = (0.3,) if quick else (0.3, 1.0, 3.0)
    judges = soft_worlds(accuracies, effects, confidences)
    samples = list(soft_needed(judges, _DROP, 40 if quick else 200))
    settings = QUICK_RATES if quick else RateSettings(runs=1000, bounded_runs=200)
    extremes = soft_worlds(*(sorted({v[0], v[-1]}) for v in (accuracies, effects, confidences)))
    measured = [
        figure
        for world in extremes
        for figure in rates(world, replace(settings, tolerance=_DROP * world.sees))
    ]
    broken = [figure for figure in measured if figure.broken]
    promised = sum(figure.promise is not None for figure in measured)
    tables["soft samples"] = soft_table(samples)
    tables["soft rates"] = rates_by_score(measured)
    tables["soft promises"] = f"{promised} promises measured, {len(broken)} broken\n"
    figures["soft_needed"] = [asdict(row) for row in samples]
    figures["soft_rates"] = [asdict(figure) for figure in measured]
    _tell_broken(broken)
    return not broken


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print: 0 if every promise was kept and no warm run asked a model, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few runs, few worlds")
    parser.add_argument("--part", choices=PARTS, action="append", help="what is measured; all")
    parser.add_argument(
        "--json", type=Path, help="write every figure to this file, whose other parts stay"
    )
    parser.add_argument("--page", type=Path, help="fill the tables of this page")
    options = parser.parse_args(arguments)
    about = f"{machine()}{'; --quick' if options.quick else ''}"
    started = time.process_time()
    tables, figures, kept = measure(options.part or PARTS, quick=options.quick)
    _print(tables)
    print(f"{about}; {time.process_time() - started:.0f} CPU seconds without the timed runs")
    if options.json is not None:
        known = json.loads(options.json.read_bytes()) if options.json.exists() else {}
        document = known | {"machine": about, **figures}
        options.json.write_text(_dump(document), encoding="utf-8")
    if options.page is not None:
        fill_page(options.page, tables | {"machine": f"{about}.\n"})
    return 0 if kept else 1


def _dump(document: Mapping[str, Any]) -> str:
    """JSON; a table has its columns once, and a line for each row, so that changed rows show."""
    fields = []
    for name, value in document.items():
        table = _table(value) if isinstance(value, list) else value
        text = json.dumps(table)
        if isinstance(table, dict) and table.keys() == {"columns", "rows"}:
            rows = ",\n".join(f"   {json.dumps(row)}" for row in table["rows"])
            text = f'{{"columns": {json.dumps(table["columns"])}, "rows": [\n{rows}\n ]}}'
        fields.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"columns": [*rows[0]], "rows": [[*map(_short, row.values())] for row in rows]}


def _short(value: object) -> object:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _print(tables: Mapping[str, str]) -> None:
    for name, text in tables.items():
        print(f"## {name}\n\n{text}")


if __name__ == "__main__":
    sys.exit(main())
