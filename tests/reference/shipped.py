"""A copy of a shipped suite with its baselines, run as a user does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.documents import flat_report
from tests.golden.frozen import FILES

ROOT = Path(__file__).parents[2]

VERDICTS: dict[str, int] = json.loads((FILES / "shipped_baselines.json").read_text())["verdicts"]
"""Frozen: name of a shipped suite and verdict -> how many cases have it."""


def copy_suite(suite: str, folder: Path) -> Path:
    """The folder, with a suite's files, its baselines and the shipped checkpoints."""
    shutil.copytree(
        ROOT / "suites" / suite, folder / "suites" / suite,
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    for baselines in (ROOT / "baselines").glob(f"{suite}*"):
        shutil.copytree(baselines, folder / "baselines" / baselines.name)
    (folder / "reference").symlink_to(ROOT / "reference")
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def gate(place: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run pytest there in a process of its own; (exit code, JSON report)."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"),
            *arguments,
        ],
        cwd=place,
        env={k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))},
        capture_output=True,
        text=True,
        check=False,
    )
    report = place / ".cepbench" / "report.json"
    assert report.exists(), ended.stdout + ended.stderr
    return ended.returncode, flat_report(json.loads(report.read_text()))


def assert_frozen_verdicts(report: dict[str, Any], suite: str) -> None:
    """Every case of a shipped suite, and of those in its folder, has the frozen verdict."""
    verdicts = Counter(f"{case['suite']} {case['verdict']}" for case in report["cases"])
    own = (f"{suite} ", f"{suite}-")
    assert dict(verdicts) == {k: number for k, number in VERDICTS.items() if k.startswith(own)}


def assert_holds(folder: Path, suite: str) -> dict[str, Any]:
    """Gate a copied suite over all samples: its own checkpoints are held. Gives the report."""
    code, report = gate(folder, f"suites/{suite}")
    assert code == 0
    assert_frozen_verdicts(report, suite)
    return report
