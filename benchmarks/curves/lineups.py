"""Who plays with whom: each checkpoint with the best of the other role, and a perfect pair."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["describer", "generator"]

ROLES: tuple[Role, ...] = ("describer", "generator")

PERFECT = "shapes:"
"""The world's own describer and generator, which make no mistake: what a metric reaches at best."""


_PRECISION = "dtype=float32"  # as the suites name their describer: the same results in the store


@dataclass(frozen=True)
class Pair:
    """A describer and a generator as model specs; steps of training, None for the perfect."""

    describer: str
    generator: str
    steps: tuple[int, int] | None


@dataclass(frozen=True)
class Series:
    """The checkpoints of one role by step, rising, each with the best of the other role.

    fixed: the step of that one.
    """

    role: Role
    pairs: tuple[Pair, ...]
    fixed: int

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of the checkpoints."""
        own = ROLES.index(self.role)
        return tuple(pair.steps[own] for pair in self.pairs if pair.steps is not None)


def find_series(folder: Path, only: Sequence[int] | None = None) -> list[Series]:
    """Both series, of the folders `describer-stepN` and `generator-stepN`; the last is the best.

    only: positions in each series to keep, such as (0, -1); all when None.
    Raises ValueError where a series has fewer than two checkpoints.
    """
    steps_of = {role: _steps(folder, role) for role in ROLES}
    best = {role: max(steps_of[role]) for role in ROLES}

    def pair(describer: int, generator: int) -> Pair:
        return Pair(
            f"{folder / f'describer-step{describer}'}?{_PRECISION}",
            f"preset:drawing?model={folder / f'generator-step{generator}'}",
            (describer, generator),
        )

    kept = {
        role: steps if only is None else sorted({steps[position] for position in only})
        for role, steps in steps_of.items()
    }
    describers = tuple(pair(step, best["generator"]) for step in kept["describer"])
    generators = tuple(pair(best["describer"], step) for step in kept["generator"])
    return [
        Series("describer", describers, best["generator"]),
        Series("generator", generators, best["describer"]),
    ]


def perfect_pair() -> Pair:
    """The world's own describer and generator."""
    return Pair(PERFECT, PERFECT, None)


def _steps(folder: Path, role: Role) -> list[int]:
    names = re.compile(rf"{role}-step(\d+)")
    matches = [names.fullmatch(entry.name) for entry in folder.iterdir()] if folder.is_dir() else []
    steps = sorted(int(match[1]) for match in matches if match)
    if len(steps) < 2:
        raise ValueError(
            f"{folder}: a curve needs at least two {role}s, named {role}-stepN; found {len(steps)}"
        )
    return steps
