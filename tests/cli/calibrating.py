"""`cepbench calibrate` on the suite of a test, what it prints and what it writes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pytest_cepbench.gate import FreshMeasurement, Noise
from pytest_cepbench.gate.baseline import baseline_path
from tests.cli.conftest import Ended, Home

MODEL = "shapes:?miss=0.3"


def calibrate(home: Home, *argv: str, model: str = MODEL) -> Ended:
    """The command on the suite here."""
    return home.command("calibrate", ".", f"--model={model}", *argv)


def row(text: str, case: str) -> list[str]:
    """The cells of a case in the table."""
    return next(line.split()[1:] for line in text.splitlines() if line.startswith(f"{case} "))


def noise_in(root: Path, measurement: FreshMeasurement) -> Noise | None:
    """What the baseline of a case says of its noise."""
    table = tomllib.loads(baseline_path(root, measurement.key).read_text())
    return Noise(**table["noise"]) if "noise" in table else None


def without_noise(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files without their section [noise]."""
    return {name: re.sub(rb"\n\[noise\]\n(.+\n)+", b"", data) for name, data in files.items()}
