"""What facts see and similarity does not: describers that are wrong and true to themselves.

Every describer checkpoint of `reference/checkpoints` plays the chains of `suites/shapes` with the
best generator; the rule-based models play those of `suites/instrument`, beside a pair that calls
every color by another's name and draws it right. Of the same chains stand GC@3, the case `truth`,
and whether the last picture still shows the scene of the start.

    OMP_NUM_THREADS=1 python benchmarks/fact_checks.py --write
    # few chains, nothing written
    OMP_NUM_THREADS=1 python benchmarks/fact_checks.py --samples 2

Prints Markdown tables. --write puts them into benchmarks/results/facts.md between its marks. What
is played is kept in the store that pytest uses in this repository.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

if __package__ in (
    None,
    "",
):  # Run by its path, Python looks beside the script for what it imports.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.curves.lineups import find_series
from benchmarks.curves.truth import Array, kept_by_chains
from pytest_cepbench.errors import CepError
from pytest_cepbench.evaluation.shown_samples import shown_facts
from pytest_cepbench.metrics import correlation
from pytest_cepbench.metrics.fact_losses import FactSummary
from pytest_cepbench.report.fact_table import kind_heads, kind_rows
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)

_ROOT = Path(__file__).resolve().parents[1]

PAGE = _ROOT / "benchmarks" / "results" / "facts.md"

CODED = "python:benchmarks.coded_pair:pair"

HIGH = 0.9
"""GC@3 from which a chain counts as one that has kept its start."""

_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Played:
    """What one describer, or pair, did.

    name: for the table.
    step: of the training; None for models that follow rules.
    gc, truth: of each chain, in the order of the samples.
    kept: of each chain whether the last picture shows the scene of the start.
    facts: what became of the facts.
    """

    name: str
    step: int | None
    gc: Array
    truth: Array
    kept: npt.NDArray[np.bool_]
    facts: FactSummary


def play(
    name: str, step: int | None, file: Path, choices: RoleChoices, store: Store, most: int | None
) -> Played:
    """Measure GC and facts of the same chains. Raises what suites, models and stores raise."""
    suite = load_suite(file)
    assignments, measures = assign_models(suite, choices)
    dataset = load_data(suite, {}, most)
    run = ChainRun(suite, dataset, assignments, measures, ModelPool(store, threads=1))
    cases = {
        str(case.key.within): case
        for case in list_cases(measures, suite.name, dataset, suite.table.groups)
    }
    scores: dict[str, Array] = {}
    facts = None
    for case in ("overall/gc", "overall/truth"):
        measured = run.measure(cases[case])
        of_each = {name: x for part in measured.scores.values() for name, x in part.items()}
        scores[case] = np.array([of_each[sample.id] for sample in dataset.samples])
        facts = measured.facts or facts
    assert facts is not None
    chains = list(run.chain_data.chains("image", dataset.samples).values())
    kept = kept_by_chains(chains, suite.plans["image"].generations, store)[:, -1, 0]
    gc, truth = scores.values()
    return Played(name, step, gc, truth, kept > 0, facts)


def play_all(store: Store, most: int | None, steps: Sequence[int]) -> Iterator[Played]:
    """The rule-based models, the coded pair, and describers of steps, all if none is named."""
    instrument, shapes = (
        _ROOT / "suites" / name / "suite.toml" for name in ("instrument", "shapes")
    )
    for name, model in (("perfect pair", "shapes:"), ("coded pair", CODED)):
        choices = RoleChoices(model=model, role="unified")
        yield play(name, None, instrument, choices, store, most)
    series, _ = find_series(_ROOT / "reference" / "checkpoints")
    for pair in series.pairs:
        assert pair.steps is not None
        if steps and pair.steps[0] not in steps:
            continue
        choices = RoleChoices(roles={"describer": pair.describer, "generator": pair.generator})
        yield play(f"step {pair.steps[0]}", pair.steps[0], shapes, choices, store, most)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first end at the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def report(played: Sequence[Played]) -> str:
    """Every table."""
    trained = [own for own in played if own.step is not None]
    blocks = [table(_HEADS, [_row(own) for own in played]), *_agreement(trained)]
    for own in played:
        shown = shown_facts(own.facts)
        blocks += [f"### {own.name}", table(kind_heads(shown), list(kind_rows(shown)))]
    return "\n\n".join(blocks)


_HEADS = (
    "models",
    "chains",
    "GC@3",
    "truth",
    f"GC@3 of {HIGH:g} or more",
    "of these without their scene",
    "their truth",
    "truth of those with it",
)


def _row(own: Played) -> list[str]:
    high = own.gc >= HIGH
    without, with_scene = high & ~own.kept, high & own.kept
    means = (
        f"{own.truth[rows].mean():.3f}" if rows.any() else "-" for rows in (without, with_scene)
    )
    return [
        own.name,
        str(len(own.gc)),
        f"{own.gc.mean():.4f}",
        f"{own.truth.mean():.4f}",
        str(int(high.sum())),
        str(int(without.sum())),
        *means,
    ]


def _agreement(trained: Sequence[Played]) -> Iterator[str]:
    """Kendall's tau with the step and with the share of scenes that were kept."""
    if len(trained) < 3:
        return
    steps = np.array([float(own.step or 0) for own in trained])
    scenes = np.array([float(own.kept.mean()) for own in trained])
    rows = []
    for name, values in (
        ("GC@3", [float(own.gc.mean()) for own in trained]),
        ("truth", [float(own.truth.mean()) for own in trained]),
    ):
        taus = [correlation(np.array(values), x, "kendall") for x in (steps, scenes)]
        rows.append([name, *("-" if tau is None else f"{tau.value:.3f}" for tau in taus)])
    heads = ("metric", "tau with the step", "tau with the share of scenes kept")
    yield f"Kendall's tau over the {len(trained)} checkpoints:\n\n{table(heads, rows)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write what was asked for; 2 where something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, help="most of each category; the suites' own")
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[], help="of these checkpoints only"
    )
    parser.add_argument("--store", type=Path, default=_ROOT / ".cepbench" / "store")
    parser.add_argument("--write", action="store_true", help="replace the tables of the page")
    options = parser.parse_args(arguments)
    started = time.process_time()
    try:
        with Store(options.store) as store:
            text = report(list(play_all(store, options.samples, options.steps)))
    except (CepError, ValueError, OSError) as error:
        print(f"fact_checks: {error}", file=sys.stderr)
        return 2
    print(text)
    words = shlex.join(sys.argv[1:] if arguments is None else list(arguments))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    seconds = f"{time.process_time() - started:.0f} s of CPU, with what the store had"
    print(f"\npython benchmarks/fact_checks.py {words}: {seconds}; {machine}")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(_BEGIN)
        _, _, after = rest.partition(_END)
        PAGE.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
