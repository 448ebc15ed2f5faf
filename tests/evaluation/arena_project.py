"""A project with a small suite of interleaved answers, gated in this process."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench import GateResult, gate_checkpoint
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.models.protocols import Battle, Piece

ONE_MODEL = 'interleaver = "shapes:"\n'


_SUITE = """\
name = "small-arena"
version = 1
[data]
loader = "shapes-arena"
options = {{ samples_per_category = 2, seed = 0 }}
[answer]
[prompts]
[arena]
against = "{against}"
[roles]
{roles}judge = "shapes:"
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
    def make(
        cls, path: Path, roles: str = ONE_MODEL, against: str = "accepted", **options: Any
    ) -> ArenaProject:
        """With baselines of the models that are named. options: as for `gate`."""
        path.mkdir(exist_ok=True)
        (path / "suite.toml").write_text(_SUITE.format(roles=roles, against=against))
        project = cls(path)
        assert project.gate(snapshot_update=True, accept_insensitive=True, **options).passed
        return project

    def copy(self, path: Path) -> ArenaProject:
        """The same project elsewhere, with baselines and store."""
        return ArenaProject(Path(shutil.copytree(self.path, path)))

    def gate(self, **options: Any) -> GateResult:
        """Gate a model. options: of `gate_checkpoint`."""
        return gate_checkpoint(self.path / "suite.toml", root=self.path, **options)


@dataclass(frozen=True)
class TextJudge:
    """Prefers the answer whose texts come first in the alphabet, where that is shown second.

    It is a tie otherwise.
    """

    fingerprint: str = "text judge/1"

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Winner]:
        """A verdict on each battle."""
        return ["B" if _texts(b.second) < _texts(b.first) else "Tie(A)" for b in battles]


def _texts(pieces: Sequence[Piece]) -> list[str]:
    return [piece for piece in pieces if isinstance(piece, str)]
