"""A gate for training loops: each checkpoint against the last one that was accepted.

    gate = Gate(folder)
    verdict = gate(checkpoint)  # after each one that is saved

    python reference/gating.py FOLDER CHECKPOINT

The gate is the command that a person would type, in a process of its own, so the training's random
streams, memory and threads are left alone. What it has accepted lies in files: a training that is
started again goes on from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SUITE = Path(__file__).parents[1] / "suites" / "shapes" / "test_shapes.py"

TEST = f"{SUITE}::test_drift[overall-gc]"
"""One number, which has all of the error to itself: GC@3 over all scenes."""

SETTINGS = {"CEPBENCH_SAMPLES": "8", "CEPBENCH_TOLERANCE": "0.1"}
"""Scenes of each category, and the drop that does not matter. The environment goes before it."""


class Outcome(StrEnum):
    """What becomes of a checkpoint. Failed: nothing is known of it."""

    ACCEPTED = "accepted"
    UNDECIDED = "undecided"
    REGRESSED = "regressed"
    FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    """What the gate says of a checkpoint.

    code: pytest's exit code. value: of the gated number, None where there is none. accepted: the
    last accepted checkpoint. report: the HTML page. output: what was printed.
    """

    checkpoint: Path
    outcome: Outcome
    code: int
    value: float | None
    accepted: Path | None
    report: Path
    output: str

    @property
    def stops(self) -> bool:
        """Whether training on makes no sense."""
        return self.outcome in {Outcome.REGRESSED, Outcome.FAILED}

    @property
    def story(self) -> str:
        """For the person who finds the training stopped."""
        return (
            f"{self.output}\n"
            f"{self.checkpoint}: {self.outcome}, the training stops here\n"
            f"last accepted checkpoint: {self.accepted or 'none'}\n"
            f"report: {self.report if self.report.exists() else 'none was written'}"
        )


class Gate:
    """Holds the checkpoints of a training to the last one that it accepted.

    folder: where baselines, reports and computed results lie; one for each training.
    test: what pytest is to run.
    """

    def __init__(self, folder: Path, test: str = TEST) -> None:
        self._test = test
        self._folder = folder
        self._baselines = folder / "baselines"
        self._note = folder / "accepted"

    @property
    def accepted(self) -> Path | None:
        """The last accepted checkpoint, None before the first."""
        return Path(self._note.read_text()) if self._note.exists() else None

    def __call__(self, checkpoint: Path) -> Verdict:
        """Gate a saved checkpoint; where it passes, later ones are held to it."""
        report = self._folder / "reports" / f"{checkpoint.name}.json"
        for suffix in (".json", ".html", ".md"):
            report.with_suffix(suffix).unlink(missing_ok=True)
        first = self.accepted is None
        ended = self._run(
            "pytest",
            self._test,
            f"--model={checkpoint}",
            f"--cep-baselines={self._baselines}",
            f"--cep-report={report}",
            # The first checkpoint of a training may know nothing yet: later ones are held to it.
            *(["--snapshot-update", "--cep-accept-insensitive"] if first else []),
        )
        cases = json.loads(report.read_bytes())["cases"] if report.exists() else []
        outcome = _outcome(ended.returncode, {case["verdict"] for case in cases}, first=first)
        output = ended.stdout
        if outcome is Outcome.ACCEPTED and not first:
            output += self._accept(report)
        if outcome is Outcome.ACCEPTED:
            self._note.write_text(str(checkpoint))
        return Verdict(
            checkpoint,
            outcome,
            ended.returncode,
            cases[0]["value"] if cases else None,
            self.accepted,
            report.with_suffix(".html"),
            output,
        )

    def _accept(self, report: Path) -> str:
        """Take what was just measured as the new baseline; the first one stays as the anchor.

        Raises RuntimeError with what was printed where the baseline could not be written.
        """
        why = f"{report.stem} passed the gate of its training"
        ended = self._run(
            "pytest_cepbench.cli",
            *("accept", f"{report}", f"--baselines={self._baselines}", f"--reason={why}"),
            "--accept-insensitive",
        )
        if ended.returncode != 0:
            raise RuntimeError(ended.stdout)
        return ended.stdout

    def _run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={"CEPBENCH_STORE": f"{self._folder / 'store'}", **SETTINGS, **os.environ},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _outcome(code: int, verdicts: set[str], *, first: bool) -> Outcome:
    """Of a run: what pytest's exit code and the report's verdicts come to."""
    if code == 0 and (first or "inconclusive" not in verdicts):
        return Outcome.ACCEPTED
    if code == 0:
        return Outcome.UNDECIDED
    if code == 1 and "regressed" in verdicts:
        return Outcome.REGRESSED
    return Outcome.FAILED


def main() -> None:
    """Gate one checkpoint from the command line; the exit code is pytest's."""
    folder, checkpoint = map(Path, sys.argv[1:])
    verdict = Gate(folder)(checkpoint)
    print(verdict.story if verdict.stops else f"{checkpoint}: {verdict.outcome}, {verdict.value}")
    sys.exit(verdict.code)


if __name__ == "__main__":
    main()
