"""The verdicts, and the one table that says what each means to pytest, to people and to CI."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Verdict(StrEnum):
    """What the gate says of a measurement against its baseline (design 4)."""

    HELD = "held"
    REGRESSED = "regressed"
    NO_BASELINE = "no-baseline"
    INCOMPARABLE = "incomparable"
    INCOMPLETE = "incomplete"
    ERROR = "error"


@dataclass(frozen=True)
class Presentation:
    """How a verdict shows.

    outcome: category in pytest's counts. letter: in the progress line. color: a pytest markup
    name. exit_code: what the run ends with when this is its worst verdict. meaning: one sentence.
    """

    outcome: Literal["passed", "failed", "error"]
    letter: str
    color: Literal["green", "red", "yellow"]
    exit_code: int
    meaning: str

    @property
    def passes(self) -> bool:
        """Whether a case with this verdict lets the run pass."""
        return self.outcome == "passed"


PRESENTATIONS = {
    Verdict.HELD: Presentation(
        "passed", ".", "green", 0, "no drop larger than the tolerance was measured"
    ),
    Verdict.REGRESSED: Presentation(
        "failed", "F", "red", 1, "the drop is larger than the tolerance"
    ),
    Verdict.NO_BASELINE: Presentation(
        "failed", "F", "yellow", 1, "nothing has been accepted yet to compare with"
    ),
    Verdict.INCOMPARABLE: Presentation(
        "error", "E", "yellow", 1, "the baseline was made from something else"
    ),
    Verdict.ERROR: Presentation("error", "E", "red", 1, "the measurement could not be made"),
    Verdict.INCOMPLETE: Presentation(
        "error", "E", "red", 3, "cases that should have been judged were not"
    ),
}
"""Every verdict has a row; 3 is pytest's "internal error": such a run says nothing of the model."""
