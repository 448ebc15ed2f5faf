"""A copy of a shipped suite with its baselines, run as a user does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.documents import flat_report

ROOT = Path(__file__).parents[2]


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
