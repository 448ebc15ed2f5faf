"""Equivariance of the reference models: what it says of a training, beside the truth.

    OMP_NUM_THREADS=1 python benchmarks/equivariance.py --write     # a quarter of an hour, one core
    OMP_NUM_THREADS=1 python benchmarks/equivariance.py --samples 8
    OMP_NUM_THREADS=1 python benchmarks/equivariance.py --regress pruned quantized=2 --samples 20

Every checkpoint of `reference/checkpoints` answers the starts of `suites/shapes-equivariance`,
edited and not: describers the images, generators the captions, as in a run that gates them. The
truth is what the very same answers tell or show of their own start. Then the rule-based describer
does so with each of its knobs turned, so that it is known what was lost. Prints Markdown tables;
--write puts them into benchmarks/results/equivariance.md. --regress gates regressions of
`reference/regress.py` instead, against the describer that they were made of.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

if __package__ in (
    None,
    "",
):  # Run by its path, Python looks beside the script for what it imports.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.curves.analysis import Tau, tau
from benchmarks.curves.lineups import Role, find_series
from benchmarks.curves.resampling import Array, Estimate, draw, estimate
from benchmarks.curves.truth import ASPECTS, kept_by_chains
from benchmarks.gated import BEST, Bench, fill_in, table
from pytest_cepbench.chains import Modality
from pytest_cepbench.measures.edited_facts import ScoreName
from pytest_cepbench.measures.equivariance import EquivarianceTable
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    Suite,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)

_ROOT = Path(__file__).resolve().parents[1]

_SUITES = _ROOT / "suites" / "shapes-equivariance"

_ALL = 10_000  # samples of each category: more than there are

PAGE = _ROOT / "benchmarks" / "results" / "equivariance.md"

STARTS: Mapping[Role, Modality] = {"describer": "image", "generator": "text"}

SHARES: tuple[ScoreName, ...] = ("both", "followed", "kept")

KNOBS = (
    "prior=1", "left=1", "prior=0.1", "left=0.1", "miss=0.1", "recolor=0.1", "reshape=0.1",
    "resize=0.1", "move=0.1", "swap=0.1", "blank=0.1",
)  # fmt: skip
"""Of the rule-based models: those that ignore edits wholly, and each of all at one in ten."""


@dataclass(frozen=True)
class Answers:
    """What one model made of the starts.

    scores: share -> edit -> start that was edited -> score of the pair.
    truth: sample -> (aspects,) what its answer keeps of its own start.
    origins: sample -> the start that it was made of. homes: start -> its category.
    """

    scores: Mapping[ScoreName, Mapping[str, Mapping[str, float]]]
    truth: Mapping[str, Array]
    origins: Mapping[str, str]
    homes: Mapping[str, str]

    @cached_property
    def starts(self) -> list[str]:
        """The starts that were edited, in order."""
        return sorted(set(self.origins.values()))

    def weights(self, draws: int) -> Array:
        """(draws + 1, starts) how often each is drawn; the first row has each once."""
        drawn = draw([self.homes[name] for name in self.starts], draws, seed=0)
        counts = np.array([np.bincount(row, minlength=len(self.starts)) for row in drawn])
        whole = np.ones((1, len(self.starts)))
        return np.concatenate([whole, counts.reshape(draws, len(self.starts))])

    def values(self, share: ScoreName, edit: str | None, weights: Array) -> Array:
        """(draws + 1,) mean score of an edit, or the mean of all edits' means."""
        edits = self.scores[share] if edit is None else [edit]
        means = []
        for name in edits:
            own = self.scores[share][name]
            there = np.array([start in own for start in self.starts])
            scores = np.array([own.get(start, 0.0) for start in self.starts])
            means.append(weights @ scores / (weights @ there))
        mean: Array = np.mean(means, axis=0)
        return mean

    def kept(self, aspect: str, weights: Array) -> Array:
        """(draws + 1,) mean truth of all answers."""
        place = {name: number for number, name in enumerate(self.starts)}
        columns = [place[self.origins[name]] for name in self.truth]
        shares = np.array([own[ASPECTS.index(aspect)] for own in self.truth.values()])
        own = weights[:, columns]
        mean: Array = (own @ shares) / own.sum(axis=1)
        return mean


def answers(
    file: Path,
    role: Role,
    roles: Mapping[str, str],
    pool: ModelPool,
    store: Store,
    most: int | None,
) -> Answers:
    """Have a model answer, and score it. roles: model specs. most: samples of each category."""
    suite = _with_shares(load_suite(file), STARTS[role])
    assignments, measures = assign_models(
        suite,
        RoleChoices(roles=roles),  # type: ignore[arg-type] # they are role names
    )
    dataset = load_data(suite, {}, most)
    run = ChainRun(suite, dataset, assignments, measures, pool)
    cases = {case.id: case for case in list_cases(measures, suite.name, dataset, {})}
    origin = {sample.id: sample.origin for sample in dataset.samples}
    scores = {
        share: {
            edit: {origin[name]: score for name, score in own.items()}
            for edit, own in run.measure(cases[f"overall-{share}"]).scores.items()
        }
        for share in SHARES
    }
    chains = run.chain_data.chains(STARTS[role], dataset.samples)
    kept = kept_by_chains(list(chains.values()), 1, store)[:, 1]
    return Answers(
        scores,
        dict(zip(chains, kept, strict=True)),
        origin,
        {sample.id: sample.categories[0] for sample in dataset.samples},
    )


def _with_shares(suite: Suite, start: Modality) -> Suite:
    """The suite with one role's score and both of its parts in place of its own metrics."""
    metrics = {
        share: EquivarianceTable(kind="equivariance", start=start, score=share) for share in SHARES
    }
    return msgspec.structs.replace(suite, metrics=metrics)


def series_table(steps: Sequence[int], by_step: Sequence[Answers], draws: int) -> str:
    """Values by checkpoint, and Kendall's tau with the step and with the truth."""
    weights = by_step[0].weights(draws)
    truth = np.array([own.kept("exact", weights) for own in by_step])
    rising = np.repeat(np.array(steps, float)[:, None], draws + 1, axis=1)
    rows = []
    for label, columns in _columns(by_step, weights):
        first = np.array(columns)
        rows.append([label, *_values(first), _tau(first, rising), _tau(first, truth)])
    for aspect in ("exact", "objects"):
        kept = np.array([own.kept(aspect, weights) for own in by_step])
        cells = [*_values(kept), _tau(kept, rising), ""]
        rows.append([f"*truth: {'exact scenes' if aspect == 'exact' else 'object F1'}*", *cells])
    head = ["", *map(str, steps), "tau with the step", "tau with exact scenes"]
    return table(head, rows)


def _columns(by_step: Sequence[Answers], weights: Array) -> Iterator[tuple[str, list[Array]]]:
    yield "equivariance", [own.values("both", None, weights) for own in by_step]
    for edit in by_step[0].scores["both"]:
        yield edit, [own.values("both", edit, weights) for own in by_step]
    yield "edit followed", [own.values("followed", None, weights) for own in by_step]
    yield "rest kept", [own.values("kept", None, weights) for own in by_step]


def _values(columns: Array) -> list[str]:
    return [_with_half(estimate(float(row[0]), row[1:])) for row in columns]


def _with_half(known: Estimate) -> str:
    if known.low is None or known.high is None:
        return f"{known.value:.3f}"
    return f"{known.value:.3f} ± {(known.high - known.low) / 2:.3f}"


def _tau(first: Array, second: Array) -> str:
    """Of the values, with the interval over the draws."""
    order: Tau | None = tau(first[:, 0], second[:, 0], first[:, 1:], second[:, 1:])
    if order is None:
        return "-"
    ends = "" if order.low is None else f" [{order.low:.2f}, {order.high:.2f}]"
    return f"{order.value:.2f}{ends}, p {order.p:.2f}"


def knob_table(pool: ModelPool, store: Store, most: int | None) -> str:
    """The rule-based describer with each knob turned: all edits, each, and both parts."""
    rows = []
    for knob in ("", *KNOBS):
        spec = f"shapes:?{knob}" if knob else "shapes:"
        roles = {"describer": spec, "generator": "shapes:"}
        own = answers(_SUITES / "instrument.toml", "describer", roles, pool, store, most)
        once = np.ones((1, len(own.starts)))
        cells = [own.values("both", edit, once)[0] for edit in (None, *own.scores["both"])]
        cells += [own.values(share, None, once)[0] for share in ("followed", "kept")]
        rows.append([f"`{spec}`", *(f"{value:.3f}" for value in cells)])
    head = ["", "equivariance", *own.scores["both"], "edit followed", "rest kept"]
    return table(head, rows)


def regression_table(names: Sequence[str], samples: int) -> str:
    """The verdicts on equivariance of copies of the best describer that were made worse.

    names: NAME or NAME=AMOUNT.
    """
    sys.path.insert(0, str(_ROOT / "reference"))  # its scripts import each other
    from regress import REGRESSIONS, regress

    rows = []
    tests = f"{_SUITES / 'test_shapes_equivariance.py'}::test_edits"
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), tests, samples, None, None, ("overall", "described"))
        bench.accept(BEST, "-k", "described")
        for text in names:
            name, _, given = text.partition("=")
            amount = float(given) if given else REGRESSIONS[name].amount
            copy = Path(folder) / text
            regress(name, BEST, copy, amount)
            gated = bench.gate(copy, "-k", "described")
            rows.append(
                [
                    f"`{name}`",
                    REGRESSIONS[name].about,
                    "" if amount is None else f"{amount:g}",
                    "-" if gated.value is None else f"{gated.value:.3f}",
                    gated.verdict,
                    ", ".join(case.partition("/")[0] for case in gated.regressed) or "none",
                ]
            )
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    head = ["", "what it is", "amount", "equivariance", "its verdict", "cases regressed"]
    return table(head, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, help="most of each category; the suite's own")
    parser.add_argument("--draws", type=int, default=1000, help="of the bootstrap; 1000")
    parser.add_argument("--store", type=Path, default=_ROOT / ".cepbench" / "store")
    parser.add_argument("--checkpoints", type=Path, default=_ROOT / "reference" / "checkpoints")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    parser.add_argument("--regress", nargs="+", metavar="NAME[=AMOUNT]", help="gate these instead")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    words = sys.argv[1:] if arguments is None else arguments
    if options.regress:
        samples = options.samples or _ALL
        tables = {"regressions": regression_table(options.regress, samples)}
    else:
        tables = _series_and_knobs(options)
    tables["run-regress" if options.regress else "run"] = (
        f"`{shlex.join(['python', 'benchmarks/equivariance.py', *words])}`: "
        f"{time.perf_counter() - started:.0f} s on {os.cpu_count()} cores of "
        f"{platform.machine()}, Python {platform.python_version()}; what was in the store already "
        "is not counted.\n"
    )
    for name, text in tables.items():
        print(f"## {name}\n\n{text}")
        if options.write:
            fill_in(PAGE, name, text)


def _series_and_knobs(options: argparse.Namespace) -> dict[str, str]:
    """Table by name."""
    tables = {}
    with Store(options.store) as store:
        pool = ModelPool(store, threads=1)
        for series in find_series(options.checkpoints):
            by_step = []
            for pair in series.pairs:
                roles = {"describer": pair.describer, "generator": pair.generator}
                file = _SUITES / "suite.toml"
                by_step.append(answers(file, series.role, roles, pool, store, options.samples))
                print(series.role, pair.steps, file=sys.stderr, flush=True)
            tables[f"{series.role}s"] = series_table(series.steps, by_step, options.draws)
        tables["knobs"] = knob_table(pool, store, options.samples)
    return tables


if __name__ == "__main__":
    main()
