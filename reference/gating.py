"""The gate of the reference trainings, and a command that gates one checkpoint.

    gate = reference_gate(folder)
    verdict = gate(checkpoint)  # after each one that is saved

    python reference/gating.py FOLDER CHECKPOINT

`pytest_cepbench.integrations` does the work; here stands which suite is run, and how much of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pytest_cepbench.errors import CepError
from pytest_cepbench.integrations import Gate

SUITE = Path(__file__).parents[1] / "suites" / "shapes" / "test_shapes.py"

TEST = f"{SUITE}::test_drift[overall-gc]"
"""One number, which has all of the error to itself: GC@3 over all scenes."""

SETTINGS = {"CEPBENCH_SAMPLES": "8", "CEPBENCH_TOLERANCE": "0.1"}
"""Scenes of each category, and the drop that does not matter. The environment goes before it."""


def reference_gate(folder: Path, test: str = TEST) -> Gate:
    """A gate that holds the checkpoints of a training to the last accepted one.

    folder: where baselines, reports and computed results lie; one for each training.
    test: what pytest is to run.
    """
    env = {name: os.environ.get(name, value) for name, value in SETTINGS.items()}
    return Gate(folder, test, env=env)


def main() -> None:
    """Gate one checkpoint from the command line; the exit code is pytest's."""
    parser = argparse.ArgumentParser(description="Gate a checkpoint of a training.")
    parser.add_argument("folder", type=Path, help="of the gate; one for each training")
    parser.add_argument("checkpoint", help="a folder, or another model spec")
    options = parser.parse_args()
    try:
        verdict = reference_gate(options.folder)(options.checkpoint)
    except CepError as error:
        parser.exit(2, f"{error}\n")
    print(verdict.summary if verdict.stops else verdict.line)
    sys.exit(verdict.code)


if __name__ == "__main__":
    main()
