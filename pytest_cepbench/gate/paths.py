"""Where baselines and anchors lie below the baseline folder."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.gate.measurement import CaseKey

SUFFIX = ".toml"

ANCHORS = "anchors"
"""Folder of anchors beside the baselines of a suite."""


def baseline_path(root: Path, key: CaseKey) -> Path:
    """Where the baseline of a case lies below the baseline folder."""
    return root / key.suite / f"{key.file_stem}{SUFFIX}"


def anchor_path(root: Path, key: CaseKey) -> Path:
    """Where the anchor of a case lies, the first baseline of a row of accepted ones."""
    return root / key.suite / ANCHORS / f"{key.file_stem}{SUFFIX}"
