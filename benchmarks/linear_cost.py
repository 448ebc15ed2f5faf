r"""Whether cost grows linearly: time per sample of few and many, with an empty and a full store.

Whole pytest processes over folders of image files with one describe and one generate each, by
models that cost next to nothing. What a run of ten samples takes is taken off as the start.

    OMP_NUM_THREADS=1 python -m benchmarks.linear_cost
    OMP_NUM_THREADS=1 python -m benchmarks.linear_cost --samples 1000 10000 --repeats 5

CPU seconds of whole processes: on a shared machine they are steadier than wall seconds.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.whole_runs import (
    GATED,
    Project,
    Spent,
    accepted,
    in_turns,
    machine,
    median_cpu,
    median_wall,
)

_START = 10
"""Samples of the run that stands for the start."""

_CATEGORIES = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, nargs=2, default=[1000, 10000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    counts = [_START, *options.samples]
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        projects = {
            str(n): accepted(folder / str(n), n, {"sim": ""}, categories=_CATEGORIES)
            for n in counts
        }
        sides = {}
        for n, project in projects.items():
            sides[f"empty store {n}"] = partial(_cold, project)
            sides[f"full store {n}"] = partial(project.run, GATED)
        spent_by_side = in_turns(sides, options.repeats)
    print(
        f"\nmedians of {options.repeats} in turns; "
        f"without the start: per sample, less {_START} samples"
    )
    print(
        f"{'':14}{'samples':>8}{'wall':>9}{'CPU':>9}{'CPU per sample':>16}{'without the start':>19}"
    )
    for store in ("empty store", "full store"):
        start = median_cpu(spent_by_side[f"{store} {_START}"])
        rates = []
        for n in options.samples:
            runs = spent_by_side[f"{store} {n}"]
            cpu = median_cpu(runs)
            rates.append((cpu - start) / (n - _START) * 1e3)
            print(
                f"{store:14}{n:>8}{median_wall(runs):8.2f}s{cpu:8.2f}s{cpu / n * 1e3:13.3f} ms"
                f"{rates[-1]:16.3f} ms"
            )
        print(f"{'':14}{'ratio':>8} {rates[1] / rates[0]:.3f}")


def _cold(project: Project) -> Spent:
    project.forget()
    return project.run(GATED)


if __name__ == "__main__":
    main()
