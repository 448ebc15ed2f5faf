"""What tests of training loops share: gates of one scene of each category, without statistics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.integrations import Gate
from tests.integrations.folder_model import SPEC

ROOT = Path(__file__).parents[2]

TEST = f"{ROOT}/suites/instrument/test_instrument.py::test_drift[overall-gc]"

QUICK = (
    "--cep-samples=1", "--cep-gate=threshold", "--cep-tolerance=0.1",
    *("-p", "no:xdist", "-p", "no:hypothesispytest", "-p", "no:playwright", "-p", "no:anyio"),
)  # fmt: skip
"""A verdict of eight scenes: a drop of the mean by more than 0.1 is a regression. Plugins that
nothing here needs are not imported."""

ENVIRONMENT = {"PYTHONPATH": str(ROOT), "CEPBENCH_ATTRIBUTE": "0"}
"""For the gate's process: it finds the models of these tests, and does not explain regressions."""

PRIVATE = ("CEPBENCH_", "PYTEST_XDIST_", "PYTEST_ADDOPTS")
"""Beginnings of variables of this run of tests that the processes that it starts are not to see."""

MakeGate = Callable[..., Gate]


@pytest.fixture
def make_gate(tmp_path: Path) -> MakeGate:
    """Gates in the folder `gate`, on checkpoints of `folder_model` unless told otherwise."""

    def make(**settings: Any) -> Gate:
        defaults = {"model": SPEC, "options": QUICK, "env": ENVIRONMENT}
        return Gate(tmp_path / "gate", TEST, **{**defaults, **settings})

    return make


@pytest.fixture
def rule_gate(make_gate: MakeGate, tmp_path: Path) -> MakeGate:
    """As `make_gate`, with the process of `rule_gate.py` in the place of pytest."""

    def make(**settings: Any) -> Gate:
        return make_gate(
            **{"model": "{checkpoint}", "env": {}, "python": interpreter(tmp_path), **settings}
        )

    return make


def interpreter(folder: Path) -> str:
    """A program that takes the arguments of Python, and is `rule_gate.py`."""
    path = folder / "python"
    if not path.exists():
        script = Path(__file__).with_name("rule_gate.py")
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {script} "$@"\n')
        path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that are started know nothing of the environment that the tests run in."""
    for name in [name for name in os.environ if name.startswith(PRIVATE)]:
        monkeypatch.delenv(name)
