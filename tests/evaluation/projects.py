"""Projects whose checkpoints are gated in this process: of scored chains, and of answers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench import CaseResult, GateResult, gate_checkpoint
from tests.plugin.scored_project import scored_suite


@dataclass(frozen=True)
class GatedProject:
    """A folder with one suite over `tests.plugin.scored`."""

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


_SUITE = """\
name = "small-arena"
version = 1
[data]
loader = "shapes-arena"
options = { samples_per_category = 2, seed = 0 }
[answer]
[prompts]
[arena]
[roles]
interleaver = "shapes:"
judge = "shapes:"
[metrics.win_rate]
parts = "overall"
[metrics.truth]
tolerance = 0.001
[metrics.failures]
[gate]
gate = "threshold"
primary = ["win_rate", "truth"]
"""


@dataclass(frozen=True)
class ArenaProject:
    """A folder with one suite: 20 questions, judged by rules, without statistics."""

    path: Path

    @classmethod
    def make(cls, path: Path, **options: Any) -> ArenaProject:
        """With baselines of its models. options: as for `gate`."""
        path.mkdir(exist_ok=True)
        (path / "suite.toml").write_text(_SUITE)
        project = cls(path)
        assert project.gate(snapshot_update=True, accept_insensitive=True, **options).passed
        return project

    def copy(self, path: Path) -> ArenaProject:
        """The same project elsewhere, with baselines and store."""
        return ArenaProject(Path(shutil.copytree(self.path, path)))

    def gate(self, **options: Any) -> GateResult:
        """Gate a model. options: of `gate_checkpoint`."""
        return gate_checkpoint(self.path / "suite.toml", root=self.path, **options)
