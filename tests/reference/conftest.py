"""What the tests of reference/ share: its scripts import each other by bare names, as when run.

The best describer is gated on GC@3 over few scenes by pytest runs as a user's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.reference.shipped import gate

ROOT = Path(__file__).parents[2]

REFERENCE = ROOT / "reference"

sys.path.insert(0, str(REFERENCE))

BEST = REFERENCE / "checkpoints" / "describer-step2000"

TEST = f"{ROOT}/suites/shapes/test_shapes.py::test_drift[overall-gc]"


@dataclass(frozen=True)
class Bench:
    """A store and baselines in a folder, which the runs share."""

    folder: Path

    def gate(self, model: Path, *options: str) -> tuple[int, dict[str, Any], str]:
        """Exit code, the case of the JSON report, what was printed.

        The case is empty where the run ended before there was one.
        """
        (self.folder / "pytest.ini").write_text("[pytest]\n")
        run = gate(
            self.folder, TEST, f"--model={model}", "--cep-samples=2", *options, "-c", "pytest.ini"
        )
        if not run.report:
            return run.code, {}, run.output
        (case,) = run.report["cases"]
        return run.code, case, run.output


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Runs that hold copies of the best describer to itself, which is accepted."""
    bench = Bench(tmp_path_factory.mktemp("bench"))
    code, _, output = bench.gate(BEST, "--snapshot-update")
    assert code == 0, output
    return bench


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
