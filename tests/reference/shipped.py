"""A copy of a shipped suite with its baselines, run as a user does."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.suites.project import Run
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


def gate(place: Path, *arguments: str) -> Run:
    """Run pytest there in a process of its own, on which no plugin of the tests acts."""
    return Run.of(place, "-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def assert_frozen_verdicts(report: Mapping[str, Any], suite: str) -> None:
    """Every case of a shipped suite, and of those in its folder, has the frozen verdict."""
    verdicts = Counter(f"{case['suite']} {case['verdict']}" for case in report["cases"])
    own = (f"{suite} ", f"{suite}-")
    assert dict(verdicts) == {k: number for k, number in VERDICTS.items() if k.startswith(own)}


def assert_holds(folder: Path, suite: str) -> Mapping[str, Any]:
    """Gate a copied suite over all samples: its own checkpoints are held. Gives the report."""
    code, output, report = gate(folder, f"suites/{suite}")
    assert code == 0, output
    assert_frozen_verdicts(report, suite)
    return report
