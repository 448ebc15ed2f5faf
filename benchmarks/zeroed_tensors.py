"""Which single tensors of the best describer can be lost without the gate seeing it.

    OMP_NUM_THREADS=1 python benchmarks/zeroed_tensors.py           # all of them, half an hour
    OMP_NUM_THREADS=1 python benchmarks/zeroed_tensors.py --only multi_modal_projector

Sets each tensor to zero in turn and gates the result on GC@3 over all scenes, a part of the samples
of `suites/shapes`, and on failed chains. Prints a Markdown table; --write puts it into
benchmarks/results/regressions.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "reference")]  # run by its path, and as its scripts are run

from damage import tensors  # noqa: E402

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

TESTS = f"{DRIFT}[overall-gc]"

HEAD = ("tensor", "shape", "exact captions", "GC@3", "verdict")


def names_of(folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Every tensor of a checkpoint, with its shape."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "np") as file:
        return [
            (name, tuple(file.get_slice(name).get_shape()))
            for name in file.keys()  # noqa: SIM118
        ]


def zeroed(of: Path, name: str, out: Path) -> Path:
    """A copy of a checkpoint with one tensor of zeros."""
    shutil.copytree(of, out)
    with tensors(out) as weights:
        weights[name].zero_()
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """Zero, gate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--of", type=Path, default=BEST, help="the describer")
    parser.add_argument("--only", default="", help="tensors with this in their name")
    parser.add_argument("--generator", help="instead of the suite's")
    parser.add_argument("--encoder", help="instead of the suite's")
    parser.add_argument("--samples", type=int, default=4, help="of each category")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    results: dict[str, tuple[tuple[int, ...], float | None, Gated]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), TESTS, options.samples, options.generator, options.encoder)
        bench.accept(options.of)
        for name, shape in names_of(options.of):
            if options.only in name:
                copy = zeroed(options.of, name, Path(folder) / name)
                results[name] = shape, exact_captions(copy, options.samples), bench.gate(copy)
                print(*row(name, *results[name]), sep=" | ", file=sys.stderr, flush=True)
    rows = [row(name, *result) for name, result in results.items()]
    text = (
        f"{summary(results)}\n\n{table(HEAD, rows)}\n"
        f"`{shlex.join(['python', 'benchmarks/zeroed_tensors.py', *sys.argv[1:]])}`: "
        f"{time.perf_counter() - started:.0f} s on {os.cpu_count()} cores of {platform.machine()}, "
        f"{options.samples} samples of each category.\n"
    )
    print(text)
    if options.write:
        fill_in(PAGE, "zeroed", text)


def row(
    name: str, shape: tuple[int, ...], exact: float | None, gated: Gated
) -> tuple[str, str, str, str, str]:
    """A line of the table."""
    return (
        f"`{name}`",
        " x ".join(map(str, shape)),
        "-" if exact is None else f"{exact:.0%}",
        "-" if gated.value is None else f"{gated.value:.3f}",
        gated.verdict,
    )


def summary(results: dict[str, tuple[tuple[int, ...], float | None, Gated]]) -> str:
    """How many there are of each verdict, matrices and vectors apart."""
    lines = []
    for what, wide in (("matrices", True), ("vectors", False)):
        verdicts = Counter(
            gated.verdict for shape, _, gated in results.values() if (len(shape) > 1) is wide
        )
        counted = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
        lines.append(f"Of {verdicts.total()} {what}: {counted or 'none'}.")
    return " ".join(lines)


if __name__ == "__main__":
    main()
