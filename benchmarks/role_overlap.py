"""Roles on devices of their own, working at the same time: wall time against the slowest role.

Whole pytest runs with models that wait in place of computing, on devices that do not exist, with
`--cep-overlap=off` and `auto`. Wall time is from the first call of a model to the end of the last;
a role is busy while its model is called. What is printed are ratios, so that neither a start-up
nor a store on a slow disk hides what devices wait for one another.

    python -m benchmarks.role_overlap
    python -m benchmarks.role_overlap --samples 192 --categories 8 --waits 60,60,60
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.whole_runs import Project, machine, seed_images

_ROLES = ("Describer", "Generator", "Encoder")

_SUITE = """\
name = "overlap"
version = 1
[data]
loader = "folder"
path = "{images}"
[chain]
iterations = {iterations}
[prompts]
describe = "describe"
[roles]
describer = "{Describer}"
generator = "{Generator}"
encoder = "{Encoder}"
[metrics.gc]
"""

_SETUPS = ((48, 1), (96, 4), (192, 8))
"""Samples and categories."""

_WAITS = ((60.0, 60.0, 60.0), (30.0, 120.0, 30.0), (120.0, 30.0, 15.0))
"""Milliseconds that describer, generator and encoder take for an input."""


@dataclass(frozen=True)
class Worked:
    """One run: seconds from the first call to the last, and those that each role was busy."""

    wall: float
    busy: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """Wall time over the time that the slowest role was busy."""
        return self.wall / max(self.busy.values())


def run(folder: Path, project: Project, overlap: str) -> Worked:
    """Run pytest on an empty store, and read what its models noted."""
    project.forget()
    logs = {role: folder / role for role in _ROLES}
    for log in logs.values():
        for path in log.iterdir():
            path.unlink()
    project.run("--snapshot-update", "--cep-helpers=0", f"--cep-overlap={overlap}")
    calls = {
        role: [
            (float(began), float(ended))
            for path in log.glob("done-*")
            for began, ended, *_ in (line.split() for line in path.read_text().splitlines())
        ]
        for role, log in logs.items()
    }
    every = [call for own in calls.values() for call in own]
    wall = max(ended for _, ended in every) - min(began for began, _ in every)
    return Worked(wall, {role: sum(b - a for a, b in own) for role, own in calls.items()})


def prepare(
    folder: Path, samples: int, categories: int, waits: Sequence[float], batch: int, iterations: int
) -> Project:
    """A project whose roles wait on a device each."""
    project = Project(folder / "project")
    seed_images(project.root / "images", samples, categories)
    specs = {}
    for number, (role, wait) in enumerate(zip(_ROLES, waits, strict=True)):
        (folder / role).mkdir(exist_ok=True)
        specs[role] = (
            f"python:benchmarks.waiting_models:{role}?wait={wait / 1000}&batch={batch}"
            f"&device=cuda:{number}&log={folder / role}"
        )
    project.suite(project.root / "images", {"gc": ""}, "overlap")
    text = _SUITE.format(images=project.root / "images", iterations=iterations, **specs)
    (project.root / "overlap" / "suite.toml").write_text(text)
    return project


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int)
    parser.add_argument("--categories", type=int, default=1)
    parser.add_argument("--waits", help="milliseconds of describer, generator, encoder: 20,40,5")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    waits = [tuple(map(float, options.waits.split(",")))] if options.waits else _WAITS
    setups = [(options.samples, options.categories)] if options.samples else _SETUPS
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(machine())
    print(
        f"T = {options.iterations}, batches of {options.batch}, {options.repeats} runs in turns\n"
    )
    print("wall time / time that the slowest role is busy; share of it that this role is idle\n")
    print("| samples | categories | ms an input | one after the other | at the same time | idle |")
    print("|---|---|---|---|---|---|")
    for samples, categories in setups:
        for own in waits:
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                project = prepare(
                    folder, samples, categories, own, options.batch, options.iterations
                )
                before, after = (
                    statistics.median(run(folder, project, overlap).ratio for _ in range(repeats))
                    for overlap, repeats in (("off", 1), ("auto", options.repeats))
                )
            shown = " / ".join(f"{wait:g}" for wait in own)
            print(
                f"| {samples} | {categories} | {shown} | {before:.2f} | {after:.2f} "
                f"| {1 - 1 / after:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
