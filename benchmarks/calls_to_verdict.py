"""Calls of models until a case is decided, under each way to look again.

    OMP_NUM_THREADS=1 python benchmarks/calls_to_verdict.py --write             # ten CPU minutes
    OMP_NUM_THREADS=1 python benchmarks/calls_to_verdict.py --quick
    python benchmarks/calls_to_verdict.py --read --write                        # page from the JSON

Chains are played once: the reference series through `suites/shapes`, each checkpoint against the
best of its role, and the instrument at two losses. Every pair of scores that they gave is a
population, with its ties and ceilings; a repetition draws 24 samples of each category from it and
looks again until a verdict. The tolerance is the population's drop, or a half or a quarter of it;
without drift each pair is turned around with probability one half, and the tolerance is half of the
drop. Calls are those of describer and generator with an empty store.

Prints Markdown; --write puts it and the figures into benchmarks/results/calls-to-verdict.md and
benchmarks/results/calls_to_verdict.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

if __package__ in (
    None,
    "",
):  # Run by its path, Python looks beside the script for what it imports.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt

from benchmarks.curves.lineups import Pair, find_series
from benchmarks.error_rates.verdicts import looks
from benchmarks.error_rates.worlds import Array, Layout
from pytest_cepbench.errors import CepError
from pytest_cepbench.gate import Verdict
from pytest_cepbench.metrics import gc_at_t
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ChainRun, ModelPool, RoleChoices, assign_models, load_data
from pytest_cepbench.suites import load_suite as read_suite
from pytest_cepbench.suites.definition import Suite, SuiteNumber, amended

_ROOT = Path(__file__).resolve().parents[1]

PAGE = _ROOT / "benchmarks" / "results" / "calls-to-verdict.md"

RESULTS = _ROOT / "benchmarks" / "results" / "calls_to_verdict.json"

DROPS = (0, 1, 2, 4)
"""In tolerances."""

ALPHA = 0.05

WAYS = ("bounds", "sequential")
"""Looks that double, and finer ones at levels that know each other."""

_EACH = 24  # samples of a category
_ITERATIONS = 3
_REPEATS, _QUICK = 24, 4
_INSTRUMENT = "shapes:?miss=0.1"
_OF_INSTRUMENT = "instrument"  # before the names of its pairs
_LOSSIER = {"0.12": "shapes:?miss=0.12"}
_SUITE = """\
name = "instrument"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples} }}
[chain]
start = "image"
iterations = 3
[prompts]
describe = "describe the image"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
"""


@dataclass(frozen=True)
class Scores:
    """Scores of the samples of a suite: gc, (n,) GC@3."""

    gc: Array
    categories: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Population:
    """Pairs of scores to draw from."""

    name: str
    before: Scores
    now: Scores

    @property
    def drop(self) -> float:
        """The mean drop."""
        return float(self.before.gc.mean() - self.now.gc.mean())

    def drawn(self, generator: np.random.Generator, *, drifts: bool) -> tuple[Array, Layout]:
        """Differences of 24 samples of each category, in turn."""
        numbers = self.before.categories
        rows = np.stack(
            [
                generator.choice(np.flatnonzero(numbers == number), _EACH)
                for number in range(int(numbers.max()) + 1)
            ],
            axis=1,
        ).ravel()
        turned = np.where(drifts | (generator.random(len(rows)) < 0.5), 1.0, -1.0)
        differences = np.round(turned * (self.now.gc - self.before.gc)[rows], 6)
        return differences, Layout(numbers[rows], np.arange(len(rows)))


@dataclass(frozen=True)
class Row:
    """What one way came to. drop: in tolerances. quartiles: of calls until a decided verdict, None
    where under one half of the repetitions ended decided. calls, drawings: medians of all
    repetitions. failed, held: shares.
    """

    population: str
    drop: int
    way: str
    runs: int
    calls: float
    drawings: float
    decided: float
    quartiles: tuple[float, float, float] | None
    failed: float
    held: float


def measure(population: Population, repeats: int) -> Iterator[Row]:
    """Every way at every drop, each on the same draws."""
    for drop in DROPS:
        tolerance = population.drop / (drop or 2)
        for way in WAYS:
            generator = np.random.default_rng([*map(ord, population.name), drop])
            drawn = [population.drawn(generator, drifts=drop > 0) for _ in range(repeats)]
            values = np.array([differences for differences, _ in drawn])
            verdicts, used = looks(values, drawn[0][1], tolerance, ALPHA, sequential=way == WAYS[1])
            yield _row(population.name, drop, way, verdicts, used)


def _row(name: str, drop: int, way: str, verdicts: Sequence[Verdict], used: Array) -> Row:
    ended = list(zip(verdicts, (2 * _ITERATIONS * used).tolist(), strict=True))
    decided = [calls for verdict, calls in ended if verdict is not Verdict.INCONCLUSIVE]
    quartiles = np.percentile(decided, (25, 50, 75)).tolist() if decided else None
    passed = (Verdict.HELD, Verdict.IMPROVED)
    return Row(
        name,
        drop,
        way,
        len(ended),
        float(np.median(2 * _ITERATIONS * used)),
        float(np.median(_ITERATIONS * used)),
        len(decided) / len(ended),
        tuple(quartiles) if quartiles and 2 * len(decided) >= len(ended) else None,
        float(np.mean([verdict is Verdict.REGRESSED for verdict in verdicts])),
        float(np.mean([verdict in passed for verdict in verdicts])),
    )


# -- chains, played once ---------------------------------------------------------------------------


def play(suite: Suite, roles: Mapping[str, str], seed: int, pool: ModelPool) -> Scores:
    """The scores of one pair of models. Raises what suites, models and the store raise."""
    seeded = amended(suite, SuiteNumber("chain", "seed", seed)) if seed else suite
    assignments, measures = assign_models(
        seeded,
        RoleChoices(roles=dict(roles)),  # type: ignore[arg-type] # they are role names
    )
    dataset = load_data(seeded, {})
    run = ChainRun(seeded, dataset, assignments, measures, pool)
    traces = run.chain_data.traces("image", "encoder", (2, 4, 6), dataset.samples)
    similarities = np.array([traces[sample.id].similarities for sample in dataset.samples])
    homes = [dataset.categories.index(sample.categories[0]) for sample in dataset.samples]
    return Scores(gc_at_t(similarities), np.array(homes))


def reference_populations(folder: Path, pool: ModelPool) -> Iterator[Population]:
    """Every checkpoint of both series that is worse than the best of its role."""
    suite = read_suite(_ROOT / "suites" / "shapes" / "suite.toml")
    series = find_series(folder)

    def roles(pair: Pair) -> dict[str, str]:
        return {"describer": pair.describer, "generator": pair.generator}

    before = play(suite, roles(series[0].pairs[-1]), 0, pool)
    for own in series:
        for step, pair in zip(own.steps[:-1], own.pairs[:-1], strict=True):
            now = play(suite, roles(pair), 0, pool)
            name = f"{own.role} of step {step}"
            yield Population(name, before, now)


def instrument_populations(pool: ModelPool, samples: int) -> Iterator[Population]:
    """The instrument at two greater losses, with the same draws and with others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.toml"
        path.write_text(_SUITE.format(samples=samples), encoding="utf-8")
        suite = read_suite(path)
        before = play(suite, {"describer": _INSTRUMENT}, 0, pool)
        for miss, spec in _LOSSIER.items():
            for seed, draws in ((0, "same draws"), (3, "other draws")):
                now = play(suite, {"describer": spec}, seed, pool)
                name = f"{_OF_INSTRUMENT}, miss 0.1 to {miss}, {draws}"
                yield Population(name, before, now)


# -- the page --------------------------------------------------------------------------------------


def report(rows: Sequence[Row]) -> str:
    """Two tables: calls until a decided verdict, and what the verdicts were."""
    ways = list(dict.fromkeys(row.way for row in rows))
    by_key = {(row.population, row.drop, row.way): row for row in rows}
    keys = list(dict.fromkeys((row.population, row.drop) for row in rows))
    calls = [
        [name, str(drop), *(_calls(by_key[name, drop, way]) for way in ways)] for name, drop in keys
    ]
    drawings = [
        [name, str(drop), *(f"{by_key[name, drop, way].drawings:.0f}" for way in ways)]
        for name, drop in keys
    ]
    verdicts = [
        [
            name,
            str(drop),
            *(
                f"{by_key[name, drop, w].failed:.0%} / {by_key[name, drop, w].held:.0%}"
                for w in ways
            ),
        ]
        for name, drop in keys
    ]
    head = ["pair", "drop", *ways]
    return (
        f"## Calls\n\n{_table(head, calls)}\n\n## Drawings\n\n{_table(head, drawings)}\n\n"
        f"## Verdicts\n\n{_table(head, verdicts)}\n\n"
        f"## Sequential looks in parts of doublings\n\n{_summary(rows)}\n\n"
        f"## Errors\n\n{_errors(rows)}"
    )


def _calls(row: Row) -> str:
    """Median of all repetitions; then quartiles of the decided ones."""
    if row.quartiles is None:
        return f"{row.calls:.0f} (-)"
    low, middle, high = row.quartiles
    return f"{row.calls:.0f} ({low:.0f}, {middle:.0f}, {high:.0f})"


def _summary(rows: Sequence[Row]) -> str:
    """Median over pairs of the ratio of decided medians, by drop."""
    by_key = {(row.population, row.drop, row.way): row.quartiles for row in rows}
    series = [row for row in rows if not row.population.startswith(_OF_INSTRUMENT)]
    lines = []
    for name, among in (("all", rows), ("reference series", series)):
        for drop in DROPS:
            both = [
                (by_key[pair, drop, WAYS[1]], by_key[pair, drop, WAYS[0]])
                for pair in dict.fromkeys(row.population for row in among)
            ]
            ratios = [fine[1] / plain[1] for fine, plain in both if fine and plain]
            found = f"{np.median(ratios):.2f} of {len(ratios)}" if ratios else "-"
            lines.append([name, str(drop), found])
    return _table(["pairs", "drop", WAYS[1]], lines)


def _errors(rows: Sequence[Row]) -> str:
    """False failures without drift and false passes at the tolerance, over all pairs together."""
    lines = []
    for name, drop in (("false failures, no drop", 0), ("false passes, drop of 1", 1)):
        cells = [name]
        for way in WAYS:
            own = [row for row in rows if (row.drop, row.way) == (drop, way)]
            wrong = sum((row.held if drop else row.failed) * row.runs for row in own)
            cells.append(f"{wrong:.0f} of {sum(row.runs for row in own)}")
        lines.append(cells)
    return _table(["", *WAYS], lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_MARKS = ("<!-- figures -->", "<!-- end of figures -->")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or read, print, write what was asked for; 2 where something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="the instrument alone, few repetitions"
    )
    parser.add_argument("--repeats", type=int, default=_REPEATS, help="of each setting; 24")
    parser.add_argument("--jobs", type=int, default=1, help="processes that draw; 1")
    parser.add_argument("--read", action="store_true", help="play nothing: take the JSON file")
    parser.add_argument("--write", action="store_true", help="write the JSON file and the page")
    parser.add_argument("--store", type=Path, default=_ROOT / ".cepbench" / "store")
    parser.add_argument("--checkpoints", type=Path, default=_ROOT / "reference" / "checkpoints")
    options = parser.parse_args(arguments)
    if options.repeats < 2:
        parser.error(f"--repeats: quartiles need at least 2 repetitions, got {options.repeats}")
    started = time.process_time()
    try:
        rows = _read() if options.read else list(_measured(options))
    except (CepError, ValueError, OSError) as error:
        print(f"calls_to_verdict: {error}", file=sys.stderr)
        return 2
    text = report(rows)
    print(text)
    if options.write:
        if not options.read:
            _write(rows, time.process_time() - started)
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(_MARKS[0])
        after = rest.partition(_MARKS[1])[2]
        page = f"{before}{_MARKS[0]}\n\n{text}\n\n{_MARKS[1]}{after}"
        PAGE.write_text(page, encoding="utf-8")
    return 0


def _measured(options: argparse.Namespace) -> Iterator[Row]:
    repeats = _QUICK if options.quick else options.repeats
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store" if options.quick else options.store
        with Store(root) as store:
            pool = ModelPool(store, threads=1)
            populations = [*instrument_populations(pool, 8 if options.quick else 100)]
            if not options.quick:
                populations += reference_populations(options.checkpoints, pool)
    if options.jobs == 1:
        for population in populations:
            yield from _rows_of(population, repeats)
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as processes:
        for rows in processes.map(_rows_of, populations, [repeats] * len(populations)):
            yield from rows


def _rows_of(population: Population, repeats: int) -> list[Row]:
    rows = list(measure(population, repeats))
    print(f"{population.name}: {population.drop:.4f}", file=sys.stderr, flush=True)
    return rows


def _read() -> list[Row]:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    return [
        Row(**{**row, "quartiles": None if row["quartiles"] is None else tuple(row["quartiles"])})
        for row in document["rows"]
    ]


def _write(rows: Sequence[Row], seconds: float) -> None:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    document = {
        "machine": machine,
        "cpu_seconds": round(seconds, 1),
        "alpha": ALPHA,
        "rows": [asdict(row) for row in rows],
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
