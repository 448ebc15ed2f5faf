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
    """Rule-based models and those under reference/, over all samples: each case has its verdict.

    Pictures are described 32 at a time: a batch is no part of a model, and one of 8 takes longer.
    """
    pytest.importorskip("diffusers", reason="the reference models need the [models] extra")
    place = copy_suite(suite, tmp_path)
    for file in (place / "suites" / suite).glob("*.toml"):
        text = file.read_text("utf-8")
        file.write_text(text.replace("-step2000?", "-step2000?batch_size=32&"), "utf-8")
    assert_holds(place, suite)


def test_no_baseline_is_kept_for_nothing() -> None:
    """Each folder of baselines is that of a suite whose cases are gated."""
    gated = {name.partition(" ")[0] for name in VERDICTS}
    assert gated == {path.name for path in (ROOT / "baselines").iterdir() if path.is_dir()}
    assert {name.partition("-")[0] for name in gated} == {*SUITES, *ELSEWHERE}
