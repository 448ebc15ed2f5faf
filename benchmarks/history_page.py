"""How long the history of many runs takes to open: to read, to show as a table, to draw as a page.

    python -m benchmarks.history_page --runs 10000 --cases 40

writes a history as the gate does, and starts `cepbench history` on it as a user would, in processes
of its own. With --browser it also measures until Chromium has loaded the page.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from pytest_cepbench.report.history.file import (
    FORMAT,
    HistoryCase,
    HistoryModel,
    HistoryRun,
    identity_digest,
)

_REPEATS = 5

_EPOCH = 1_790_000_000.0  # when the first run began


def main() -> None:
    """Print the figures, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--browser", help="Chromium, to load the page in")
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        root = Path(name)
        size = write_history(root / ".cepbench" / "history", arguments.runs, arguments.cases)
        print(f"{arguments.runs:,} runs of {arguments.cases} cases: {size / 1e6:.1f} MB")
        page = root / "history.html"
        for label, argv in (
            ("start of the command (--help)", ["--help"]),
            ("cepbench history", []),
            ("cepbench history --case 'suite-1/part-1/*'", ["--case", "suite-1/part-1/*"]),
            ("cepbench history --html", ["--html", str(page)]),
        ):
            print(f"{label}: {fastest(argv, root)}")
        print(f"page: {page.stat().st_size / 1e6:.2f} MB")
        if arguments.browser:
            print(
                f"page in Chromium, beyond an empty one: {loading(arguments.browser, page, root)}"
            )


def write_history(folder: Path, runs: int, cases: int) -> int:
    """Write a history of one machine; returns its size in bytes."""
    folder.mkdir(parents=True)
    path = folder / "host.jsonl"
    with path.open("wb") as stream:
        for run in made_up_runs(runs, cases):
            stream.write(msgspec.json.encode(run) + b"\n")
    return path.stat().st_size


def made_up_runs(runs: int, cases: int) -> Iterator[HistoryRun]:
    """Values that walk, and bounds around them; every thousandth run has other samples."""
    rng = random.Random(0)
    values = [0.8] * cases
    for number in range(runs):
        values = [min(0.99, max(0.1, value + rng.gauss(0, 0.003))) for value in values]
        identity = identity_digest({"samples": str(number // 1000)})
        yield HistoryRun(
            format=FORMAT,
            run=f"{number:032x}",
            started=_EPOCH + 3600 * number,
            seconds=60.0,
            verdict="failed" if number % 7 == 0 else "passed",
            models=[HistoryModel("describer", f"checkpoints/step-{number}", f"step {number}")],
            cases=[_case(rng, case, value, identity) for case, value in enumerate(values)],
            report=f"../reports/{number}.json",
            report_bytes=100_000,
            digest="0" * 16,
            host="host",
            cepbench="0.1.0",
        )


def _case(rng: random.Random, number: int, value: float, identity: str) -> HistoryCase:
    difference = value - 0.8
    half = 0.005 + 0.01 * rng.random()
    return HistoryCase(
        case=f"suite-{number // 10}/part-{number % 10}/gc",
        verdict="regressed" if difference < -0.05 else "held",
        value=round(value, 6),
        baseline=0.8,
        difference=round(difference, 6),
        low=round(difference - half, 6),
        high=round(difference + half, 6),
        tolerance=0.01,
        n=200,
        identity=identity,
    )


@dataclass(frozen=True)
class Seconds:
    """Time of a process, and its processor time: on a busy machine only the latter says much."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, {self.processor:.2f} s of processor time"


def fastest(argv: list[str], root: Path) -> Seconds:
    """The fastest of some runs of `cepbench history`."""
    command = [sys.executable, "-m", "pytest_cepbench.cli", "history", *argv]
    package = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": package, "COLUMNS": "100"}
    return _fastest(command, root, environment)


def loading(browser: str, page: Path, root: Path) -> Seconds:
    """What Chromium needs for the page beyond an empty one."""
    blank = root / "empty.html"
    blank.write_text("<!doctype html><title>empty</title>", encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]
    picture = f"--screenshot={root / 'page.png'}"
    empty, whole = (
        _fastest([browser, *flags, picture, path.as_uri()], root, dict(os.environ))
        for path in (blank, page)
    )
    return Seconds(whole.wall - empty.wall, whole.processor - empty.processor)


def _fastest(command: list[str], root: Path, environment: dict[str, str]) -> Seconds:
    times = []
    for _ in range(_REPEATS):
        before, started = os.times(), time.perf_counter()
        subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
        wall, after = time.perf_counter() - started, os.times()
        spent = after.children_user + after.children_system
        times.append(Seconds(wall, spent - before.children_user - before.children_system))
    return Seconds(min(t.wall for t in times), min(t.processor for t in times))


if __name__ == "__main__":
    main()
