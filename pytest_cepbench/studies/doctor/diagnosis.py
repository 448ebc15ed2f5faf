"""The results of the checks of a set-up: plain data, from which the page and the file are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_cepbench.studies.study_result import StudiedModel, StudyUsage

Status = Literal["pass", "remark", "problem", "not done"]
"""Of a check: nothing to say; something to know; the gate cannot keep its promise as it is; there was
nothing to check, or it could not be checked."""

Cell = str | float | int | None

_ORDER: tuple[Status, ...] = ("not done", "pass", "remark", "problem")


@dataclass(frozen=True)
class CheckTable:
    """A table of what was measured.

    head: names of the columns.
    rows: their cells; the first of a row names it, None is not known.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Check:
    """One check.

    name: what was checked.
    status: what came of it.
    said: sentences, the first the shortest account.
    advice: what to do about it, a sentence each.
    figures: tables.
    """

    name: str
    status: Status
    said: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    figures: tuple[CheckTable, ...] = ()


def worst(statuses: list[Status]) -> Status:
    """The gravest; "not done" where there is none."""
    return max(statuses, key=_ORDER.index, default="not done")


@dataclass(frozen=True)
class Diagnosis:
    """The checks of one set-up.

    suite, version, file: what was looked at.
    data: identity of the data set.
    samples: how many.
    seeds: under which it was played.
    under_test, model: who would be gated.
    players: everybody who took part.
    checks: in the order of the page.
    damage: what the store found broken meanwhile.
    effort: what the checks took.
    """

    suite: str
    version: int
    file: str
    data: Mapping[str, str]
    samples: int
    seeds: tuple[int, ...]
    under_test: str
    model: str
    players: tuple[StudiedModel, ...]
    checks: tuple[Check, ...]
    damage: tuple[str, ...] = ()
    effort: StudyUsage = field(default_factory=StudyUsage)

    @property
    def problems(self) -> tuple[Check, ...]:
        """The checks that found a problem."""
        return tuple(check for check in self.checks if check.status == "problem")
