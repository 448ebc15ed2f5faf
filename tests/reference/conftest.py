"""What the tests of reference/ share: its scripts import each other by bare names, as when run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reference.gated import Bench, accepted

REFERENCE = Path(__file__).parents[2] / "reference"

sys.path.insert(0, str(REFERENCE))


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Runs that hold copies of the best describer to itself."""
    return accepted(tmp_path_factory.mktemp("bench"))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that are started know nothing of the environment that the tests run in."""
    for name in [name for name in os.environ if name.startswith(("CEPBENCH_", "PYTEST_XDIST_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def arithmetic_as_it_was() -> Iterator[None]:
    """What scripts settle for a whole process does not last: other tests need denormal numbers."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_flush_denormal(False)
