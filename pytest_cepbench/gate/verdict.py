"""The verdicts, and the one mapping of each to its meaning in pytest, reports and CI."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Literal


class Verdict(StrEnum):
    """Outcome of comparing a measurement with its baseline."""

    IMPROVED = "improved"
    HELD = "held"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no-baseline"
    INCOMPARABLE = "incomparable"
    INCOMPLETE = "incomplete"
    ERROR = "error"


@dataclass(frozen=True)
class Presentation:
    """Appearance of a verdict in pytest, reports and CI.

    outcome: category in pytest's counts.
    letter: in the progress line.
    color: a pytest markup name.
    exit_code: what the run ends with when this is its worst verdict.
    meaning: one sentence.
    next_step: what to do about it.
    """

    outcome: Literal["passed", "inconclusive", "informational", "failed", "error"]
    letter: str
    color: Literal["green", "red", "yellow"]
    exit_code: int
    meaning: str
    next_step: str

    @property
    def passes(self) -> bool:
        """True where a case with this verdict lets the run pass."""
        return self.outcome not in ("failed", "error")


BY_THRESHOLD = "the measured drop exceeds the tolerance"
"""Meaning of a regression without statistics."""

_MEND = "mend what is named above and run again; what was computed is kept"

_passed = partial(Presentation, "passed", color="green", exit_code=0)
_failed = partial(Presentation, "failed", "F", exit_code=1)
_error = partial(Presentation, "error", "E")

PRESENTATIONS = {
    Verdict.IMPROVED: _passed(
        letter="+",
        meaning="better by more than the tolerance, and not by noise",
        next_step=(
            "raise the baseline with --snapshot-update, so that a later drop is seen from here"
        ),
    ),
    Verdict.HELD: _passed(
        letter=".", meaning="a drop larger than the tolerance is excluded", next_step="nothing"
    ),
    Verdict.INCONCLUSIVE: Presentation(
        "inconclusive",
        letter="?",
        color="yellow",
        exit_code=0,
        meaning="the samples do not tell a drop of the tolerance from none",
        next_step="gate more samples or seeds, let --cep-inconclusive=more draw them as they are "
        "needed, or allow a larger tolerance",
    ),
    Verdict.REGRESSED: _failed(
        color="red",
        meaning=f"{BY_THRESHOLD}, and is not noise",
        next_step="look at the samples in the HTML report; if the change is meant, accept it with "
        "--snapshot-update",
    ),
    Verdict.NO_BASELINE: _failed(
        color="yellow",
        meaning="nothing has been accepted yet to compare with",
        next_step="run again with --snapshot-update to accept these numbers, and commit the file",
    ),
    Verdict.INCOMPARABLE: _error(
        color="yellow",
        exit_code=1,
        meaning="the baseline was made from something else",
        next_step="run with what the baseline was made from, or accept a new one with "
        "--snapshot-update",
    ),
    Verdict.ERROR: _error(
        color="red", exit_code=1, meaning="the measurement could not be made", next_step=_MEND
    ),
    Verdict.INCOMPLETE: _error(
        color="red",
        exit_code=3,  # pytest's "internal error": such a run says nothing of the model
        meaning="cases that should have been judged were not",
        next_step=_MEND,
    ),
}
"""A row for every verdict."""

REFUSED = _failed(
    color="red",
    meaning="it is not accepted as a baseline, and no other case of the run is",
    next_step="look at the samples in the HTML report: the models may not be able to read "
    "them, or the encoder may not tell them apart; --cep-accept-insensitive accepts it all the "
    "same",
)
"""Of a case whose measurement was to become the baseline and may not."""


def present(verdict: Verdict, *, primary: bool = True, strict: bool = False) -> Presentation:
    """Presentation of a case's verdict: the one place where a verdict becomes an outcome.

    primary: whether the case can fail a run; one that cannot is shown as `informational` where it
    would have failed.
    strict: whether an inconclusive case fails: `--cep-inconclusive=fail`, and the noninferiority
    gate, which passes only what it knows.
    """
    shown = PRESENTATIONS[verdict]
    if verdict is Verdict.INCONCLUSIVE and strict:
        shown = replace(shown, outcome="failed", exit_code=1)
    if not primary and verdict is not Verdict.INCOMPLETE and shown.outcome != "passed":
        return replace(shown, outcome="informational", letter="i", color="yellow", exit_code=0)
    return shown
