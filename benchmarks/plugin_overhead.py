r"""What the plugin costs: a pytest run without a cep test, and a case beside a plain test.

A plain run is a pytest process with one empty test, with the plugin and with `-p no:cepbench`. A
case is what one more case adds to a run whose chains are all in the store: runs of few and of many
cases in turns, the difference divided by the cases between them, less the same of plain
parametrized tests. All cases are over the same eight samples, then each over four samples of its
own: those have to be read from the store, and seven of ten lose enough to be listed. Cases that are
judged by `threshold` show the machinery, those judged by `regression` the statistics besides.

    OMP_NUM_THREADS=1 python -m benchmarks.plugin_overhead
    OMP_NUM_THREADS=1 python -m benchmarks.plugin_overhead --repeats 5 --cases 100 500

CPU seconds of whole processes: on a shared machine they are steadier than wall seconds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.whole_runs import (
    GATED,
    Spent,
    accepted,
    in_turns,
    machine,
    median_cpu,
    median_wall,
    run_pytest,
)

_PLAIN = "def test_one(): pass\n"

_PARAMETRIZED = """\
import pytest

@pytest.mark.parametrize("case", range({count}))
def test_one(case): pass
"""

_GATES = ("threshold", "regression")

Sides = Mapping[str, Callable[[], Spent]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--plain-repeats", type=int, default=25)
    parser.add_argument("--cases", type=int, nargs=2, default=[100, 500])
    options = parser.parse_args()
    few, many = options.cases
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _plain_run(folder, options.plain_repeats)
        print(
            f"\none more case: runs of {few} and {many} cases, "
            f"medians of {options.repeats} in turns"
        )
        print(
            f"{'':36}{f'{few} cases':>11}{f'{many} cases':>11}{'ms per case':>13}{'over plain':>12}"
        )
        sides = {str(count): _sides(folder / str(count), count) for count in options.cases}
        every = {f"{count} {name}": run for count in sides for name, run in sides[count].items()}
        spent_by_side = in_turns(every, options.repeats)
        plain = 0.0
        for name in sides[str(few)]:
            low, high = (median_cpu(spent_by_side[f"{count} {name}"]) for count in options.cases)
            cost = (high - low) / (many - few) * 1e3
            plain = plain or cost
            print(f"{name:36}{low:10.3f}s{high:10.3f}s{cost:13.2f}{cost - plain:12.2f}")


def _plain_run(folder: Path, repeats: int) -> None:
    plain = _plain_tests(folder / "plain", _PLAIN)
    sides = {
        "with": partial(run_pytest, plain),
        "without": partial(run_pytest, plain, "-p", "no:cepbench"),
    }
    in_turns(sides, 1)  # what is compiled at first use
    spent_by_side = in_turns(sides, repeats)
    print(f"\na run without a cep test, medians of {repeats} in turns (ms)")
    print(f"{'':10}{'wall':>8}{'CPU':>8}")
    for name, runs in spent_by_side.items():
        print(f"{name:10}{median_wall(runs) * 1e3:8.1f}{median_cpu(runs) * 1e3:8.1f}")
    pairs = list(zip(spent_by_side["with"], spent_by_side["without"], strict=True))
    wall = statistics.median(plugged.wall - bare.wall for plugged, bare in pairs)
    cpu = statistics.median(plugged.cpu - bare.cpu for plugged, bare in pairs)
    print(f"{'added':10}{wall * 1e3:8.1f}{cpu * 1e3:8.1f}   (medians of the pairs' differences)")


def _sides(folder: Path, count: int) -> Sides:
    """What is run with so many cases, by name; the plain tests first."""
    folder.mkdir()
    tests = _plain_tests(folder / "plain", _PARAMETRIZED.format(count=count))
    same = accepted(folder / "same", 8, {f"m{k:04}": 'kind = "sim"' for k in range(count)})
    own = accepted(folder / "own", 4 * count, {"sim": ""}, categories=count)
    sides: dict[str, Callable[[], Spent]] = {"plain parametrized tests": partial(run_pytest, tests)}
    for name, project in (("same eight samples", same), ("four samples each", own)):
        for gate in _GATES:
            sides[f"{name}, {gate}"] = partial(project.run, GATED, f"--cep-gate={gate}")
    return sides


def _plain_tests(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_plain.py").write_text(text)
    return folder


if __name__ == "__main__":
    main()
