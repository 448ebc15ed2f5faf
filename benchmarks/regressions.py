"""What the gate sees of deliberate regressions, and of faults in files.

    OMP_NUM_THREADS=1 python benchmarks/regressions.py            # three quarters of an hour
    OMP_NUM_THREADS=1 python benchmarks/regressions.py --samples 2 pruned quantized=2 nan

Each of `reference/regress.py`, and some in other amounts, is made of the best describer and gated
against it by the drift of `suites/shapes`: every case of it, with the suite's own gate. Prints
Markdown tables; --write puts them into benchmarks/results/regressions.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "reference")]  # run by its path, and as its scripts are run

from damage import DAMAGES  # noqa: E402
from regress import REGRESSIONS, regress  # noqa: E402

from benchmarks.pages import fill_in, table  # noqa: E402
from pytest_cepbench.datasets.shapes import (  # noqa: E402
    load_shapes,
    parse_caption,
    sample_scene,
)
from pytest_cepbench.models.binding import BindContext, bind  # noqa: E402
from pytest_cepbench.models.protocols import Describer, Reply  # noqa: E402
from pytest_cepbench.models.spec import parse_spec  # noqa: E402

PAGE = _ROOT / "benchmarks" / "results" / "regressions.md"

HEAD = (
    "damage", "what it is", "exact captions", "GC@3", "its verdict", "truth F1", "cases regressed",
)  # fmt: skip

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

BEST = _ROOT / "reference" / "checkpoints" / "describer-step2000"

DRIFT = f"{_ROOT / 'suites' / 'shapes' / 'test_shapes.py'}::test_drift"

PROMPT = "describe the image"


def gate(folder: Path, model: Path, *options: str) -> list[str]:
    """The cells of a row that a run says: of GC@3 over all scenes, and of the case about facts.

    folder: of store, baselines and report.
    """
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    places = [f"--cep-store={folder / 'store'}", f"--cep-baselines={folder / 'baselines'}"]
    # The settings of this repository's own tests are no user's; assertions are not rewritten in
    # a process that has imported everything already.
    plain = ["-c", f"{folder / 'pytest.ini'}", "--assert=plain", "-p", "no:cacheprovider"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        pytest.main([
            DRIFT, f"--model={model}", f"--cep-report={report}",
            *places, *options, *plain, "-p", "no:xdist",
        ])  # fmt: skip
    if not report.exists():
        return ["-", "refused", "-", "0"]
    cases = json.loads(report.read_bytes())["cases"]
    by_case = {(case["part"], case["metric"]): case for case in cases}
    whole, truth = by_case["overall", "gc"], by_case["overall", "truth"]
    regressed = sum(case["judgement"]["verdict"] == "regressed" for case in cases)
    return [_value(whole), whole["judgement"]["verdict"], _value(truth), str(regressed)]


def _value(case: dict[str, Any]) -> str:
    measurement = case.get("measurement")
    return f"{measurement['value']:.3f}" if measurement else "-"


def exact_captions(model: Path, samples: int) -> float | None:
    """The share of the suite's scenes that are described without mistake, None where none is."""
    scenes = load_shapes(samples, seed=0).samples
    images = [sample.image.load().to_pil() for sample in scenes if sample.image is not None]
    try:
        describer = bind(parse_spec(f"{model}"), "describer", BindContext(str, threads=1)).load()
        assert isinstance(describer, Describer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            texts = describer.describe(images, PROMPT, [0] * len(images))
    except Exception:  # noqa: BLE001 - whatever keeps a model from describing, the gate tells it
        return None
    right = [
        sample_scene(scene) == parse_caption(str(text.value if isinstance(text, Reply) else text))
        for scene, text in zip(scenes, texts, strict=True)
    ]
    return sum(right) / len(right)


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
    rows: dict[bool, list[list[str]]] = {False: [], True: []}
    given = [f"--cep-samples={options.samples}"]
    given += [f"--{r}={spec}" for r in ("generator", "encoder") if (spec := getattr(options, r))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        gate(folder, options.of, "--snapshot-update", *given)
        for name, amount in variants(options.names):
            shown = REGRESSIONS[name].amount if amount is None else amount
            copy = folder / (name if amount is None else f"{name}-{amount:g}")
            regress(name, options.of, copy, amount)
            exact = exact_captions(copy, options.samples)
            known = rows[name in DAMAGES]
            again = bool(known) and known[-1][0].startswith(f"`{name}`")
            cells = [
                f"`{name}`" if shown is None else f"`{name}` {shown:g}",
                "" if again else REGRESSIONS[name].about,
                "-" if exact is None else f"{exact:.0%}",
                *gate(folder, copy, *given),
            ]
            known.append(cells)
            print(*cells, sep=" | ", file=sys.stderr, flush=True)
    figures = {"regressions": table(HEAD, rows[False]), "faults": table(HEAD, rows[True])}
    print("\n\n".join(figures.values()))
    print(f"{time.perf_counter() - started:.0f} s on {os.cpu_count()} cores, {platform.machine()}")
    if options.write:
        fill_in(PAGE, figures)


if __name__ == "__main__":
    main()
