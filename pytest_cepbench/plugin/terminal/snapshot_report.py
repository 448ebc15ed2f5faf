"""syrupy's report at the end of a run, without the cases that the summary of the run shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def leave_out_cases(config: pytest.Config, baselines: Path) -> None:
    """Take the snapshots below the folder of baselines out of what syrupy counts.

    A user's own snapshots stay. syrupy has judged the session by then.
    """
    session: Any = getattr(config, "_syrupy", None)
    report = getattr(session, "report", None)
    if report is None:
        return
    from syrupy.data import SnapshotCollections

    for outcome in ("created", "failed", "matched", "updated"):
        others = SnapshotCollections()
        for collection in getattr(report, outcome):
            if not Path(collection.location).is_relative_to(baselines):
                others.add(collection)
        setattr(report, outcome, others)
