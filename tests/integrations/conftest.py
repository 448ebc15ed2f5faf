"""What tests of training loops share: gates of one scene of each category, without statistics."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.integrations import Gate
from tests.integrations.folder_model import SPEC

ROOT = Path(__file__).parents[2]

TEST = f"{ROOT}/suites/instrument/test_instrument.py::test_drift[overall-gc]"

QUICK = ("--cep-samples=1", "--cep-gate=threshold", "--cep-tolerance=0.1", "-p", "no:xdist")
"""A verdict of eight scenes: a drop of the mean by more than 0.1 is a regression."""

ENVIRONMENT = {"PYTHONPATH": str(ROOT), "CEPBENCH_ATTRIBUTE": "0"}
"""For the gate's process: it finds the models of these tests, and does not explain regressions."""

MakeGate = Callable[..., Gate]


@pytest.fixture
def make_gate(tmp_path: Path) -> MakeGate:
    """Gates in the folder `gate`, on checkpoints of `folder_model` unless told otherwise."""

    def make(**settings: Any) -> Gate:
        defaults = {"model": SPEC, "options": QUICK, "env": ENVIRONMENT}
        return Gate(tmp_path / "gate", TEST, **{**defaults, **settings})

    return make


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that are started know nothing of the environment that the tests run in."""
    for name in [name for name in os.environ if name.startswith(("CEPBENCH_", "PYTEST_XDIST_"))]:
        monkeypatch.delenv(name)
