r"""What lies around the models, against a commit: reruns, starts, chains beside a bare loop.

    OMP_NUM_THREADS=1 python -m benchmarks.watch --against COMMIT
    OMP_NUM_THREADS=1 python -m benchmarks.watch --against COMMIT --only again start --repeats 5

This checkout and a work tree of the commit take turns, whole processes timed from outside; the
table shows medians of CPU seconds, which a busy machine leaves steadier than wall seconds, and what
they are divided by each other. Filling the stores takes the first minutes; `--keep FOLDER` keeps
them for the next time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.whole_runs import (
    Spent,
    in_turns,
    machine,
    run_command,
    run_pytest,
)

_HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Side:
    """A checkout that is measured, and a folder of its own for stores and reports."""

    checkout: Path
    folder: Path

    def run(self, *arguments: str) -> Spent:
        """One pytest process. Raises RuntimeError unless it exits with 0."""
        report = f"--cep-report={self.folder / 'report.json'}"
        return run_pytest(self.folder, report, *arguments, checkout=self.checkout)

    def suite(self, name: str, store: str) -> Spent:
        """A shipped suite on a store in the folder."""
        path = self.checkout / "suites" / name
        return self.run(str(path), f"--cep-store={self.folder / store}")

    def python(self, *arguments: str, code: int = 0) -> Spent:
        """One process of Python, which ends with this code."""
        return run_command(self.folder, arguments, self.checkout, code)


Figures = Iterator[tuple[str, Callable[[Side], float]]]
"""The name of a figure, and what measures it once."""


def again() -> Figures:
    """Second runs, of which all results are stored; CPU seconds."""
    yield "suites/shapes again", lambda side: side.suite("shapes", "shapes").cpu


def empty() -> Figures:
    """Models that cost nothing, into an empty store; CPU seconds."""
    yield "suites/instrument, empty store", lambda side: _into_empty_store("instrument", side).cpu


def cold() -> Figures:
    """The trained models that ship, into an empty store: wall seconds, for idle cores alone.

    Helper processes fill all cores, so a first run's CPU seconds are not what its user waits for.
    """
    yield "suites/shapes, empty store", lambda side: _into_empty_store("shapes", side).wall


def _into_empty_store(suite: str, side: Side) -> Spent:
    with tempfile.TemporaryDirectory(dir=side.folder) as store:
        return side.suite(suite, store)


def start() -> Figures:
    """What is waited for before anything is measured; CPU seconds."""
    yield "cepbench --help", lambda side: side.python("-m", "pytest_cepbench.cli", "--help").cpu
    mistake = ("-m", "pytest", "-q", "--cep-model=nothing:", str(_HERE / "suites" / "instrument"))
    yield "a mistake", lambda side: side.python(*mistake, code=4).cpu
    yield "plugin in a plain run", _plain


def _plain(side: Side) -> float:
    """CPU seconds that the plugin adds to a run without a case: medians of five in turns."""
    folder = side.folder / "plain"
    folder.mkdir(exist_ok=True)
    (folder / "test_plain.py").write_text("def test_one(): pass\n")
    (folder / "pytest.ini").write_text("[pytest]\n")

    def cpu(*arguments: str) -> float:
        return run_pytest(folder, *arguments, checkout=side.checkout).cpu

    present, absent = in_turns([cpu, partial(cpu, "-p", "no:cepbench")], 5)
    return present - absent


def chains() -> Figures:
    """Throughput of chains divided by that of a bare loop of the same batches."""

    def throughput(side: Side) -> float:
        arguments = ("-m", "benchmarks.chain_throughput", "--images", "32", "--repeats", "3")
        side.python(*arguments)
        text = (side.folder / "output.txt").read_text()
        found = re.search(r"throughput against [^:]*bare[^:]*: ([\d.]+)", text)
        assert found is not None, text
        return float(found[1])

    yield "chains against a bare loop (tiny)", throughput


GROUPS = {
    "again": again,
    "empty": empty,
    "cold": cold,
    "start": start,
    "chains": chains,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder of the stores (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        with _work_tree(options.against, Path(temporary) / "tree") as tree:
            _measure(options, [_side(_HERE, folder / "now"), _side(tree, folder / "before")])


def _measure(options: argparse.Namespace, sides: Sequence[Side]) -> None:
    print(machine())
    print(f"medians of {options.repeats} in turns; before: {options.against}\n")
    print(f"{'':64}{'now':>9}{'before':>9}{'ratio':>8}")
    for group in options.only:
        for name, measure in GROUPS[group]():
            for side in sides:  # fills stores and compiles modules
                measure(side)
            now, before = in_turns([partial(measure, side) for side in sides], options.repeats)
            print(f"{name:64}{now:9.3f}{before:9.3f}{now / before:8.2f}", flush=True)


def _side(checkout: Path, folder: Path) -> Side:
    folder.mkdir(parents=True, exist_ok=True)
    return Side(checkout, folder)


@contextmanager
def _work_tree(commit: str, path: Path) -> Iterator[Path]:
    git = ["git", "-C", str(_HERE), "worktree"]
    subprocess.run([*git, "add", "--detach", "--quiet", str(path), commit], check=True)
    try:
        yield path
    finally:
        subprocess.run([*git, "remove", "--force", str(path)], check=True)


if __name__ == "__main__":
    main()
