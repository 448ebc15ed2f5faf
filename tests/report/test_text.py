"""The failure message and the summary: what a person reads in a terminal."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import PRESENTATIONS, Verdict
from pytest_cepbench.report import CaseResult, Effort
from pytest_cepbench.report.text import effort_line, explain, number, printable, summary_table
from tests.report.results import REGRESSED, RESULTS


def test_a_regression_in_full() -> None:
    """The failure message as a whole, so that a change of any part of it is seen in review."""
    assert (
        explain(REGRESSED)
        == """\
regressed: toy, color, GC@2 (the drop is larger than the tolerance)

  baseline         0.7500
  now              0.5000   higher is better, n = 2
  difference      -0.2500
  tolerance       -0.0100
  course       0.6000  0.4500

  samples that lost most                     baseline        now     change
  a.png                                        0.7500     0.5000    -0.2500

  next: look at the chains in the HTML report; if the change is meant, accept it with --snapshot-update"""
    )


def test_where_lower_is_better_the_difference_says_that_it_was_turned() -> None:
    """A failure rate that rose has a negative difference, which is explained."""
    risen = msgspec.structs.replace(
        REGRESSED, higher_is_better=False, value=0.5, baseline=0.25, difference=-0.25
    )
    text = explain(risen)
    assert "lower is better" in text
    assert "-0.2500   (turned: positive is better)" in text


def test_notes_stand_below_the_numbers() -> None:
    """Each on a line of its own after the course, without control characters."""
    noted = msgspec.structs.replace(REGRESSED, notes=["SDR: 0.02 \x1b[2J", "a cut text"])
    lines = explain(noted).splitlines()
    course = next(i for i, line in enumerate(lines) if line.startswith("  course"))
    assert lines[course + 1 : course + 4] == ["  SDR: 0.02  [2J", "  a cut text", ""]


def test_a_chain_says_why_it_scored_low() -> None:
    """What stopped it, else what the metric remarks of it; neither for a chain that is whole."""
    (chain,) = REGRESSED.chains
    chains = [
        msgspec.structs.replace(chain, sample="whole"),
        msgspec.structs.replace(chain, sample="wrong", remark="expected circle>=1, found 0"),
        msgspec.structs.replace(chain, sample="ended", failure="empty-text", remark="no circle"),
    ]
    lines = explain(msgspec.structs.replace(REGRESSED, chains=chains)).splitlines()
    ends = {line.split()[0]: line.partition("-0.2500")[2] for line in lines if "-0.2500" in line}
    assert ends["whole"] == ""
    assert ends["wrong"] == "  expected circle>=1, found 0"
    assert ends["ended"] == "  empty-text"


@pytest.mark.parametrize("verdict", [v for v in Verdict if not PRESENTATIONS[v].passes])
def test_every_failing_verdict_says_what_to_do_next(verdict: Verdict) -> None:
    """The last line names a next step, and only verdicts of a measurement offer to accept it."""
    last = explain(msgspec.structs.replace(REGRESSED, verdict=verdict.value)).splitlines()[-1]
    assert last.startswith("  next: ")
    offers = verdict in (Verdict.REGRESSED, Verdict.NO_BASELINE, Verdict.INCOMPARABLE)
    assert ("--snapshot-update" in last) == offers


@given(RESULTS)
def test_no_control_character_reaches_the_terminal(result: CaseResult) -> None:
    """Whatever models, files and data sets are called or say, a terminal has nothing to obey."""
    hostile = msgspec.structs.replace(result, part=f"\x1b[2J{result.part}", reasons=["\x07\x9b1m"])
    lines = [line for line, _ in summary_table([hostile])] + explain(hostile).split("\n")
    assert all(line.isprintable() for line in lines)


@given(st.text(), st.integers(4, 50))
def test_printable_is_one_line_of_bounded_length(text: str, most: int) -> None:
    """Long texts are cut with dots, short printable ones stay as they are but for white space."""
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    if text.isprintable() and len(text) <= most and text == " ".join(text.split()):
        assert shown == text


def test_numbers_have_four_decimals_or_a_dash() -> None:
    """Signed where a change is meant; nothing known is a dash."""
    assert [number(0.12345), number(0.5, signed=True), number(None)] == ["0.1235", "+0.5000", "-"]


def test_the_summary_has_a_line_for_every_case_in_columns() -> None:
    """Columns line up under the header; the color is the verdict's."""
    held = msgspec.structs.replace(REGRESSED, verdict="held", part="a much longer category")
    accepted = msgspec.structs.replace(REGRESSED, accepted=True)
    table = summary_table([REGRESSED, held, accepted])
    assert [color for _, color in table] == ["bold", "red", "green", "green"]
    assert len({len(line) for line, _ in table}) == 1
    assert [line.split()[0] for line, _ in table] == ["verdict", "REGRESSED", "HELD", "ACCEPTED"]


def test_the_effort_is_summed() -> None:
    """Loads, inputs, hits and model time of all cases in one sentence."""
    results = [
        msgspec.structs.replace(REGRESSED, effort=Effort(1, 10, 5, 2.0, 1.25)),
        msgspec.structs.replace(REGRESSED, effort=Effort(0, 3, 7, 1.0, 0.25)),
    ]
    assert effort_line(results) == (
        "1 model loads, 13 model inputs (1.5 s in models), 12 results from the store"
    )
