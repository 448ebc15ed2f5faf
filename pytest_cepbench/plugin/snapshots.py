"""Syrupy's part in a gated case: it counts comparisons and stages updates; the verdict is the gate's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.evaluation.case_runner import Acceptance
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.gate import Judgement, Measurement, Verdict
from pytest_cepbench.gate.snapshot import BaselineExtension


def acceptance_of(snapshot: Any) -> Acceptance:
    """Which measurements syrupy's options accept as baselines. snapshot: syrupy's assertion."""
    if snapshot.update_snapshots:
        return "all"
    return "new" if snapshot.update_new_snapshots_only else "none"


@dataclass(frozen=True)
class SnapshotCounter:
    """Hands comparisons over to syrupy.

    snapshot: syrupy's assertion of the running test.
    """

    snapshot: Any
    evaluator: Evaluator

    def count(
        self,
        measurement: Measurement,
        path: Path,
        judgement: Judgement,
        accepting: bool,  # noqa: FBT001 - called by position
    ) -> None:
        """Count a comparison, and stage an update where the measurement is accepted.

        path: of the baseline.
        Raises BaselineError when nothing was staged that should have been: syrupy does not report
        what goes wrong while it compares and writes.
        """
        passes = judgement.verdict in (Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE)
        staged_root = self.evaluator.context.staged
        staged = staged_root / path.relative_to(self.evaluator.settings.baselines)
        extension = BaselineExtension.bind(path, staged, passes=None if accepting else passes)
        assertion = self.snapshot.use_extension(extension)
        agreed = bool(assertion(name=str(measurement.key)) == measurement)
        if accepting and not (agreed and (staged.exists() or path.exists())):
            executions = assertion.executions.values()
            errors = [execution.exception for execution in executions if execution.exception]
            why = f" ({errors[-1]})" if errors else ""
            msg = f"the new baseline {path.name} could not be written to {staged.parent}{why}"
            raise BaselineError(msg)
