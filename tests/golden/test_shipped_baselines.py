"""Baselines of all shipped suites, held by the checkpoints that they were accepted with."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.golden.frozen import assert_frozen
from tests.reference.shipped import ROOT, gate

SUITES = ("arena", "instrument", "judge", "shapes", "tones")
"""Those with baselines: the others have data of their users."""


@pytest.mark.models
@pytest.mark.slow
def test_shipped_suites_hold_their_own_checkpoints(tmp_path: Path) -> None:
    """Rule-based models and those under reference/, over all samples: every case has its verdict.

    All baselines are used, so that none is kept for nothing.
    """
    pytest.importorskip("diffusers", reason="the reference models need the [models] extra")
    for folder in ("suites", "baselines"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "reference").symlink_to(ROOT / "reference")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    code, report = gate(tmp_path, *(f"suites/{suite}" for suite in SUITES))
    verdicts = Counter(f"{case['suite']} {case['verdict']}" for case in report["cases"])
    assert_frozen("shipped_baselines.json", {"exit code": code, "verdicts": dict(verdicts)})
    suites = {case["suite"] for case in report["cases"]}
    assert suites == {path.name for path in (ROOT / "baselines").iterdir() if path.is_dir()}
