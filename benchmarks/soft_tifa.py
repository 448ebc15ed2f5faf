"""Soft-TIFA where the truth is known: what controls see of a VQA model, and what scores follow.

    OMP_NUM_THREADS=1 python benchmarks/soft_tifa.py --samples 4 --runs 300 --played 50 --write

Three tables. Rule-based VQA models that say yes with a known share of their probability, asked
about exact drawings: the controls that they answer rightly, and who is refused. Describers of
`reference/checkpoints` with the best generator: Soft-TIFA of their first drawings by the exact VQA
model, beside the share of scenes that these drawings show whole, and Kendall's tau of both with the
step. Error rates of the gate on Soft-TIFA of rule-based describers, as in `gate_error_rates.py`.

--write puts them into benchmarks/results/soft-tifa.md between its marks.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.curves.lineups import find_series
from benchmarks.curves.truth import kept_by_chains
from benchmarks.error_rates import embedded, errors
from benchmarks.error_rates.report import Promises
from benchmarks.fact_checks import table
from pytest_cepbench.errors import CepError, MeasurementError
from pytest_cepbench.metrics.correlation import correlation
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

PAGE = _ROOT / "benchmarks" / "results" / "soft-tifa.md"

_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"

_SUITE = """\
name = "asked"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples} }}
questions = "metadata"
[chain]
start = "image"
iterations = 1
seed = 0
[prompts]
describe = "describe the image"
[roles]
describer = "{describer}"
generator = "{generator}"
vqa = "{vqa}"
[presets.drawing]
model = "{best}"
[presets.drawing.parameters]
num_inference_steps = 8
guidance_scale = 1
height = 64
width = 64
batch_size = 24
dtype = "float32"
[metrics.soft_tifa_gm]
[metrics.soft_tifa_am]
"""

_SHARES = (0.0, 0.25, 0.4, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Asked:
    """Soft-TIFA of a pair of models, or why there is none.

    gm, am: means over the scenes. note: what the controls tell. kept: share of scenes that the
    first drawing shows whole.
    """

    gm: float | None
    am: float | None
    note: str
    kept: float = 0.0


def ask(
    folder: Path, store: Store, samples: int, describer: str, generator: str, vqa: str = "shapes:"
) -> Asked:
    """Play one iteration and ask about the drawings. Raises what suites and models raise."""
    best = _ROOT / "reference" / "checkpoints" / "generator-step3000"
    text = _SUITE.format(
        samples=samples, describer=describer, generator=generator, vqa=vqa, best=best
    )
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    suite = load_suite(path)
    assignments, measures = assign_models(suite, RoleChoices())
    dataset = load_data(suite, {})
    run = ChainRun(suite, dataset, assignments, measures, ModelPool(store, threads=1))
    cases = {
        case.key.metric: case
        for case in list_cases(measures, suite.name, dataset, suite.table.groups)
        if case.key.part == "overall"
    }
    try:
        gm, am = (run.measure(cases[f"soft_tifa_{mean}"]) for mean in ("gm", "am"))
    except MeasurementError as error:
        return Asked(None, None, str(error))
    chains = list(run.chain_data.chains("image", dataset.samples).values())
    kept = kept_by_chains(chains, 2, store)[:, 2, 0]
    return Asked(gm.value, am.value, gm.notes[0], float(kept.mean()))


def controls(folder: Path, store: Store, samples: int) -> Iterator[str]:
    """VQA models that say yes too often, about exact drawings."""
    rows = []
    for share in _SHARES:
        asked = ask(folder, store, samples, "shapes:", "shapes:", f"shapes:?yes={share:g}")
        refused = asked.gm is None
        shares = asked.note.partition("rightly: ")[2].partition(";")[0]
        score = "-" if asked.gm is None else f"{asked.gm:.3f}"
        rows.append([f"{share:g}", shares, score, "refused" if refused else "measured"])
    yield "### VQA models that say yes"
    heads = ("share of probability for yes", "controls answered rightly", "Soft-TIFA GM", "")
    yield table(heads, rows)


def training(folder: Path, store: Store, samples: int) -> Iterator[str]:
    """The describers of the training, each with the best generator."""
    series, _ = find_series(_ROOT / "reference" / "checkpoints")
    rows, columns = [], []
    for pair, step in zip(series.pairs, series.steps, strict=True):
        asked = ask(folder, store, samples, pair.describer, pair.generator)
        assert asked.gm is not None
        assert asked.am is not None
        columns.append((float(step), asked.gm, asked.am, asked.kept))
        rows.append([f"step {step}", *(f"{own:.4f}" for own in columns[-1][1:])])
    yield f"### Describers of the training, {8 * samples} scenes each"
    yield table(("describer", "Soft-TIFA GM", "Soft-TIFA AM", "scenes drawn whole"), rows)
    steps, gm, am, kept = map(np.array, zip(*columns, strict=True))
    taus = [
        [name, *(_tau(values, other) for other in (steps, kept))]
        for name, values in (("Soft-TIFA GM", gm), ("Soft-TIFA AM", am))
    ]
    yield table(("Kendall's tau", "with the step", "with scenes drawn whole"), taus)


def _tau(first: np.ndarray, second: np.ndarray) -> str:
    tau = correlation(first, second, "kendall")
    return "-" if tau is None else f"{tau.value:.3f}"


def rates(runs: int, samples: int) -> Iterator[str]:
    """Error rates of one gated case, and of fourteen, on scores of rule-based describers."""
    world = next(own for own in embedded.played(samples) if own.name.endswith(embedded.SOFT_TIFA))
    rows = [errors.row(world, n, runs, Promises())[1:] for n in (24, 60, 192)]
    yield f"### Error rates, drift {world.tolerance:.3f}, percent of {runs} runs"
    chosen = [[row[0], row[1], row[2], row[5], row[6]] for row in rows]
    yield table(("scenes", *errors.HEAD[:2], *errors.HEAD[4:]), chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write what was asked for; 2 where something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=8, help="of each of eight categories")
    parser.add_argument("--runs", type=int, default=1000, help="of each error rate")
    parser.add_argument("--played", type=int, default=100, help="scenes of each, to draw from")
    parser.add_argument("--store", type=Path, default=_ROOT / ".cepbench" / "store")
    parser.add_argument("--write", action="store_true", help="replace the tables of the page")
    options = parser.parse_args(arguments)
    started = time.process_time()
    try:
        with Store(options.store) as store, tempfile.TemporaryDirectory() as folder:
            blocks = list(controls(Path(folder), store, options.samples))
            blocks += training(Path(folder), store, options.samples)
        blocks += rates(options.runs, options.played)
    except (CepError, ValueError, OSError) as error:
        print(f"soft_tifa: {error}", file=sys.stderr)
        return 2
    # Without the place of the store, which is the machine's.
    given = {name: str(getattr(options, name)) for name in ("samples", "runs", "played")}
    words = " ".join(f"--{name} {value}" for name, value in given.items())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    seconds = f"{time.process_time() - started:.0f} s of CPU, with what the store had"
    blocks.append(f"`python benchmarks/soft_tifa.py {words}`: {seconds}; {machine}.")
    text = "\n\n".join(blocks)
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(_BEGIN)
        _, _, after = rest.partition(_END)
        PAGE.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
