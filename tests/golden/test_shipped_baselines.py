"""Baselines of all shipped suites, held by the checkpoints that they were accepted with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.shipped import ROOT, VERDICTS, assert_holds, copy_suite

SUITES = ("shapes", "judge", "tones")

ELSEWHERE = {"arena", "instrument"}
"""Tests in tests/reference and tests/plugin gate these anyway. Others have data of their users."""


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_shipped_suites_hold_their_own_checkpoints(suite: str, tmp_path: Path) -> None:
    """Rule-based models and those under reference/, over all samples: each case has its verdict."""
    pytest.importorskip("diffusers", reason="the reference models need the [models] extra")
    assert_holds(copy_suite(suite, tmp_path), suite)


def test_no_baseline_is_kept_for_nothing() -> None:
    """Each folder of baselines is that of a suite whose cases are gated."""
    gated = {name.partition(" ")[0] for name in VERDICTS}
    assert gated == {path.name for path in (ROOT / "baselines").iterdir() if path.is_dir()}
    assert {name.partition("-")[0] for name in gated} == {*SUITES, *ELSEWHERE}
