"""A project over `tests.plugin.scored` whose checkpoints are gated in this process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench import CaseResult, GateResult, gate_checkpoint
from tests.plugin.scored_project import scored_suite


@dataclass(frozen=True)
class GatedProject:
    """A folder with one suite."""

    path: Path

    @classmethod
    def make(cls, path: Path, **suite: Any) -> GatedProject:
        """With baselines of a describer that loses nothing. suite: arguments of `scored_suite`."""
        path.mkdir(exist_ok=True)
        text = scored_suite(**suite).replace("python:scored:", "python:tests.plugin.scored:")
        (path / "suite.toml").write_text(text)
        project = cls(path)
        assert project.gate(snapshot_update=True).passed
        return project

    def copy(self, path: Path) -> GatedProject:
        """The same project elsewhere, with baselines and store."""
        return GatedProject(Path(shutil.copytree(self.path, path)))

    def gate(self, options: dict[str, Any] | None = None, **knobs: Any) -> GateResult:
        """Gate a describer. options: the gate's. knobs: `scored.Describer`'s, `snapshot_update`."""
        update = knobs.pop("snapshot_update", False)
        query = "&".join(f"{name}={value}" for name, value in knobs.items())
        model = f"python:tests.plugin.scored:Describer{f'?{query}' if query else ''}"
        return gate_checkpoint(
            self.path / "suite.toml",
            root=self.path,
            snapshot_update=update,
            model=model,
            **(options or {}),
        )

    def case(self, options: dict[str, Any] | None = None, **knobs: Any) -> CaseResult:
        """The case `overall/gc` of a gated describer."""
        return self.gate(options, **knobs)["scored/overall/gc"]

    def baseline(self, case: str) -> Path:
        """The baseline file of a case (`overall-gc`)."""
        (path,) = (self.path / "baselines" / "scored").glob(f"{case}-*.toml")
        return path


def verdicts(result: GateResult) -> dict[str, str]:
    """Verdict by part and metric."""
    return {f"{case.part}-{case.metric}": case.verdict for case in result.cases}
