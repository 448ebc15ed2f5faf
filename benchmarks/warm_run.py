r"""A run whose chains are all in the store: how long it takes, and how its memory grows.

Whole pytest processes, interpreter start included, over folders of image files with one describe
and one generate each, a suite of 13 categories and the whole, and vectors of 768 numbers. Another
describer is gated than the one that was accepted. No model may be loaded or asked.

    OMP_NUM_THREADS=1 python -m benchmarks.warm_run
    OMP_NUM_THREADS=1 python -m benchmarks.warm_run --samples 1000 10000 --repeats 5

The peak is that of resident memory. What grows from the fewest samples to the most is shown beside
the vectors of both (start and image, 4 bytes a number), which are the least that could.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.whole_runs import (
    DIMENSION,
    GATED,
    accepted,
    in_turns,
    machine,
    median_cpu,
    median_peak,
    median_wall,
)

_METRICS: Mapping[str, Mapping[str, str]] = {
    "sim, failures": {"sim": "", "failures": ""},
    "sim, failures, fid": {"sim": "", "failures": "", "fid": 'tolerance = 10.0\npool = "samples"'},
}

_CATEGORIES = 13


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[1000, 1284, 10000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        for number, (name, metrics) in enumerate(_METRICS.items()):
            _measure(Path(temporary) / str(number), name, metrics, options)


def _measure(
    folder: Path, name: str, metrics: Mapping[str, str], options: argparse.Namespace
) -> None:
    counts = options.samples
    projects = {
        str(n): accepted(folder / str(n), n, metrics, categories=_CATEGORIES) for n in counts
    }
    runs = {n: partial(project.run, GATED) for n, project in projects.items()}
    spent_by_side = in_turns(runs, options.repeats)
    cases = len(projects[str(counts[0])].report()["cases"])
    print(f"\n{name}: {cases} cases, medians of {options.repeats} in turns")
    print(f"{'samples':>8}{'wall':>9}{'CPU':>9}{'peak':>10}{'loads':>7}{'inputs':>8}{'hits':>8}")
    for n, spent in spent_by_side.items():
        effort = projects[n].effort()
        print(
            f"{n:>8}{median_wall(spent):8.2f}s{median_cpu(spent):8.2f}s{median_peak(spent):7.0f} MB"
            f"{effort['loads']:7}{effort['inputs']:8}{effort['hits']:8}"
        )
    few, many = min(counts), max(counts)
    grown = median_peak(spent_by_side[str(many)]) - median_peak(spent_by_side[str(few)])
    vectors = 2 * (many - few) * DIMENSION * 4 / 2**20
    print(f"peak grows by {grown:.0f} MB from {few} to {many}; their vectors take {vectors:.0f} MB")


if __name__ == "__main__":
    main()
