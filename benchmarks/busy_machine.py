r"""The embedded default beside other work: whole cold runs, on idle cores and beside one busy loop.

    python -m benchmarks.busy_machine --against ../another-checkout

Each run is `pytest suites/shapes` of a checkout, with an empty store and a report of its own, in a
copy of the suites. The sides take turns: the other checkout on idle cores, this one on idle cores,
this one beside a process that keeps one core busy. What the environment says of threads is left
out, as most users say nothing; arguments after the options go to every run (`-k crowded-gc`).
Ratios are those of medians, and pair by pair. Read them on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from benchmarks.whole_runs import Spent, in_turns, machine, median_cpu, median_wall, run_pytest

_REPOSITORY = Path(__file__).resolve().parents[1]

_THREADS = ("OMP_", "GOMP_", "KMP_", "MKL_", "CEPBENCH_", "PYTEST_")

_SHORT = ("--cep-samples=1", "--cep-pairing=common", "-k", "crowded-gc")
"""A run that loads every kind of model and asks little of them."""

_MOST_SECONDS = 3600
"""After which the busy loop ends whatever happens to who started it."""

_LOOP = f"""\
import os, time
parent, until = os.getppid(), time.monotonic() + {_MOST_SECONDS}
while os.getppid() == parent and time.monotonic() < until:
    for _ in range(1_000_000):
        pass
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="another checkout of this repository")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--busy-against", action="store_true", help="it too, beside the loop")
    options, more_options = parser.parse_known_args()
    for name in [name for name in os.environ if name.startswith(_THREADS)]:
        del os.environ[name]
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        sides = {}
        own = _copied(_REPOSITORY, Path(temporary) / "own")
        places = {own: _REPOSITORY}
        if options.against is not None:
            checkout = options.against.resolve()
            other = _copied(checkout, Path(temporary) / "other")
            places[other] = checkout
            sides["other, idle"] = partial(_cold, other, checkout, more_options)
            if options.busy_against:
                sides["other, busy"] = partial(_cold, other, checkout, more_options, busy=True)
        sides["this, idle"] = partial(_cold, own, _REPOSITORY, more_options)
        sides["this, busy"] = partial(_cold, own, _REPOSITORY, more_options, busy=True)
        compiled = Path(temporary) / "bytecode"
        compiled.mkdir()
        for place, checkout in places.items():
            (place / "bytecode").symlink_to(compiled)
            _cold(place, checkout, [*_SHORT, *more_options])  # imports are compiled
        spent_by_side = in_turns(sides, options.repeats)
        moved = _largest_change(own)
    print(f"\n{'side':14}{'wall':>9}{'CPU':>9}   wall, each")
    for name, runs in spent_by_side.items():
        each = " ".join(f"{run.wall:.1f}" for run in runs)
        print(f"{name:14}{median_wall(runs):8.1f}s{median_cpu(runs):8.1f}s   {each}")
    for name, above, below in (
        ("this over other, both idle", "this, idle", "other, idle"),
        ("this busy over this idle", "this, busy", "this, idle"),
        ("other busy over other idle", "other, busy", "other, idle"),
    ):
        if above in spent_by_side and below in spent_by_side:
            print(_ratio(name, spent_by_side[above], spent_by_side[below]))
    print(f"largest change against a shipped baseline, in tolerances: {moved:.4f}")


def _copied(checkout: Path, place: Path) -> Path:
    """The suites of a checkout with their baselines, where runs may leave what they want."""
    shutil.copytree(
        checkout / "suites/shapes",
        place / "suites/shapes",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for folder in (checkout / "baselines").glob("shapes*"):
        shutil.copytree(folder, place / "baselines" / folder.name)
    (place / "reference").symlink_to(checkout / "reference")
    (place / "pytest.ini").write_text("[pytest]\n")
    return place


def _cold(place: Path, checkout: Path, more_options: Sequence[str], *, busy: bool = False) -> Spent:
    """One run with nothing in its store."""
    shutil.rmtree(place / ".cepbench", ignore_errors=True)
    with _busy_loop() if busy else nullcontext():
        return run_pytest(
            place, "suites/shapes", "-p", "no:xdist", *more_options, checkout=checkout
        )


@contextmanager
def _busy_loop() -> Iterator[None]:
    """A process that keeps one core busy meanwhile; it ends with this one, and after an hour."""
    loop = subprocess.Popen([sys.executable, "-c", _LOOP])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def _largest_change(place: Path) -> float:
    """Of the latest run's cases that have a tolerance."""
    cases = json.loads((place / ".cepbench/report.json").read_text())["cases"]
    changes: list[float] = [
        abs(case["difference"]) / case["tolerance"]
        for case in cases
        if case.get("difference") is not None and case["tolerance"]
    ]
    return max(changes)


def _ratio(name: str, above: Sequence[Spent], below: Sequence[Spent]) -> str:
    pairs = [a.wall / b.wall for a, b in zip(above, below, strict=True)]
    return (
        f"{name}: {median_wall(above) / median_wall(below):.2f} "
        f"(pair by pair {min(pairs):.2f} to {max(pairs):.2f})"
    )


if __name__ == "__main__":
    main()
