"""Copies of the best describer, gated on GC@3 over few scenes by pytest runs as a user's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.suites.warm import run_pytest
from tests.documents import flat_report

ROOT = Path(__file__).parents[2]

BEST = ROOT / "reference" / "checkpoints" / "describer-step2000"

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
        printed = self.folder / "printed.txt"
        code = run_pytest(
            self.folder,
            [
                *(TEST, f"--model={model}", "--cep-samples=4", *options),
                *("-c", "pytest.ini", "-p", "no:cacheprovider", "-p", "no:xdist"),
            ],
            printed,
        )
        output = printed.read_text()
        report = self.folder / ".cepbench" / "report.json"
        if not report.exists():
            return code, {}, output
        (case,) = flat_report(json.loads(report.read_text()))["cases"]
        report.unlink()
        return code, case, output


def accepted(folder: Path) -> Bench:
    """A bench that has accepted the best describer."""
    bench = Bench(folder)
    code, _, output = bench.gate(BEST, "--snapshot-update")
    assert code == 0, output
    return bench
