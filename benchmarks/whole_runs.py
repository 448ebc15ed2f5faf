"""Whole pytest runs as users start them: projects made for it, timed from outside, in turns.

    OMP_NUM_THREADS=1 python -m benchmarks.whole_runs 12500 100000

A project is a folder of seed images, a suite over them, and the models of `cheap_models.py`, which
cost next to nothing: what is measured is what lies around the models. Run as a program it measures
how a run on 8 processes grows with its images, by a describer that waits in place of computing.
"""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[1]

_MODULE = """\
def test_drift(cep_case, cep_gate):
    cep_gate(cep_case)
"""

_SUITE = """\
name = "figures"
version = 1
[data]
loader = "folder"
path = "{images}"
[chain]
iterations = 1
[prompts]
describe = "describe"
[roles]
describer = "{describer}"
generator = "python:benchmarks.cheap_models:Generator"
encoder = "python:benchmarks.cheap_models:Encoder"
[gate]
{gate}
"""

ACCEPTED_MODEL = "python:benchmarks.cheap_models:Describer"
"""The describer of the baselines."""

DIMENSION = 768
"""Of the vectors of `cheap_models`."""


@dataclass(frozen=True)
class Spent:
    """One process: wall and CPU seconds, its workers' included, and its own resident peak in MB."""

    wall: float
    cpu: float
    peak: float


def write_project(
    root: Path, samples: int, metrics: Mapping[str, str], categories: int, gate: str = ""
) -> None:
    """A folder where pytest runs: seed images, and a suite of one iteration over them.

    metrics: name -> settings in TOML. gate: what stands under [gate], likewise. The images are
    drawn in a process of their own: one that starts another hands it its own peak of memory.
    """
    images, folder = root / "images", root / "figures"
    command = [sys.executable, "-m", "benchmarks.cheap_models"]
    command += [str(images), str(samples), str(categories)]
    subprocess.run(command, cwd=_REPOSITORY, check=True)
    folder.mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_figures.py").write_text(_MODULE)
    tables = [f"[metrics.{metric}]\n{settings}" for metric, settings in metrics.items()]
    head = _SUITE.format(images=images, describer=ACCEPTED_MODEL, gate=gate)
    (folder / "suite.toml").write_text("\n".join([head, *tables]) + "\n")


def run_pytest(folder: Path, *arguments: str, checkout: Path = _REPOSITORY) -> Spent:
    """One pytest process without cache and with quiet output; as `run_command`."""
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    spent = run_command(folder, command, checkout)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert spent.peak > own, f"this process ({own:.0f} MB) hides the peak of the one it started"
    return spent


def run_command(
    folder: Path, arguments: Sequence[str], checkout: Path = _REPOSITORY, code: int = 0
) -> Spent:
    """One process of Python, its output in `output.txt`. checkout: of the package that is measured.

    Raises RuntimeError with the output unless it exits with the code.
    """
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))
    }
    environment["PYTHONPATH"] = str(checkout)
    # As where packages are installed: what is imported was compiled before.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    command = [sys.executable, *arguments]
    output = folder / "output.txt"
    with output.open("w") as stream:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=stream, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code:
        raise RuntimeError(
            f"{' '.join(command)} exited with {process.returncode}:\n{output.read_text()[-4000:]}"
        )
    return Spent(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def in_turns(sides: Sequence[Callable[[], float]], repeats: int) -> list[float]:
    """Medians of every side, which take turns, so that a busy machine slows all of them."""
    values: list[list[float]] = [[] for _ in sides]
    for repeat in range(repeats):
        for number in range(len(sides))[:: 1 if repeat % 2 == 0 else -1]:
            values[number].append(sides[number]())
    return [statistics.median(own) for own in values]


_PROCESSES = 8

_WAITING = (
    "--model=python:benchmarks.cheap_models:Describer?wait=0.005",
    # Small vectors, so that the pages of the database are not filled with them.
    "--encoder=python:benchmarks.cheap_models:Encoder?dimension=16",
)


def _growth(counts: Sequence[int]) -> None:
    """Print what a sample costs in runs of so many, into empty stores, and what is stored of it.

    Bytes are those of the index, for each step.
    """
    print(machine())
    print("  images   wall s    CPU s  CPU ms each  peak MB  bytes a step")
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            write_project(Path(folder), count, {"sim": "", "failures": ""}, categories=13)
            command = ("figures", "-n", f"{_PROCESSES}", *_WAITING, "--snapshot-update")
            spent = run_pytest(Path(folder), *command)
            index = Path(folder) / ".cepbench" / "store" / "index.sqlite"
            connection = sqlite3.connect(index)
            ((steps,),) = connection.execute("SELECT count(*) FROM results")
            connection.close()
            print(
                f"{count:8,}{spent.wall:9.1f}{spent.cpu:9.1f}{1000 * spent.cpu / count:13.3f}"
                f"{spent.peak:9.0f}{index.stat().st_size / steps:14.0f}",
                flush=True,
            )


def machine() -> str:
    """One line on the machine, what it runs, and how busy it is."""
    name = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    versions = ", ".join(f"{p} {version(p)}" for p in ("pytest", "numpy"))
    load = os.getloadavg()[0]
    return (
        f"{len(os.sched_getaffinity(0))} cores of {name}, load {load:.1f} at the start; "
        f"Python {platform.python_version()}, {versions}"
    )


if __name__ == "__main__":
    _growth([int(count) for count in sys.argv[1:]])
