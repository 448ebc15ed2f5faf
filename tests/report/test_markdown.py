"""The Markdown summary, read by a parser as CI systems do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.ci_reports import escaped, markdown_summary
from pytest_cepbench.report.writers import RunFacts
from tests.report.pages import Page, read_page
from tests.report.results import FULL, RESULTS, SECRET, replace
from tests.test_escapes import hides_nothing

markdown_it = pytest.importorskip("markdown_it", reason="Markdown is read with markdown-it-py")

FACTS = RunFacts("failed", "1.2.3", ["model under test: <b>x</b>"], ["a worker <i>died</i>"])

OURS = {
    "h2", "p", "ul", "li", "strong", "table", "thead", "tbody", "tr", "th", "td", "details",
    "summary",
}  # fmt: skip
"""The tags of a summary; everything else would have come from outside."""


def _html(text: str) -> str:
    parser: Any = markdown_it.MarkdownIt("gfm-like", {"html": True, "linkify": False})
    return str(parser.render(text))


def _read(text: str) -> Page:
    return read_page(_html(text))


@settings(max_examples=20)
@given(st.lists(RESULTS, max_size=3), st.text(max_size=30))
def test_any_text_is_shown_and_none_is_obeyed(results: list[CaseResult], text: str) -> None:
    """Whatever it is made of, a summary has a row for each case, and no markup but its own."""
    summary = markdown_summary(RunFacts("failed", "1", [text], [text]), results)
    assert hides_nothing(summary.replace("@\u200b", "@"), "\n")
    html = _html(summary)
    assert read_page(html).tags <= OURS
    assert html.count("<td") == 9 * len(results)


@given(st.text(alphabet="\\`*_{}[]()#+-.!|<>&~$:/\"'= aw\n1", max_size=40))
def test_escaped_text_is_read_as_it_was(text: str) -> None:
    """Inside a sentence and inside a table, every character stands for itself."""
    wanted = " ".join(text.split())
    page = _read(f"| a |\n|---|\n| x{escaped(text)}x |\n\nx{escaped(text)}x\n")
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert [text for text in page.texts if text.startswith("x")] == [f"x{wanted}x"] * 2


def test_control_characters_are_read_as_their_escapes() -> None:
    """And indent nothing: spaces in their place would make a block of code of a line."""
    assert escaped("\x1b \u202e 0\x00") == r"\\x1b \\u202e 0\\x00"
    assert _read(escaped("\x1b \u202e 0\x00")).text.split() == [r"\x1b", r"\u202e", r"0\x00"]


def test_markup_in_names_is_text() -> None:
    """A category with tags, links and cell walls is read by people, not by the browser."""
    bad = "<img src=x>![a](http://b/c)|`*_~"
    failing = replace(FULL, part=bad)
    page = _read(markdown_summary(FACTS, [failing, replace(failing, verdict="held")]))
    assert page.tags <= OURS
    assert sum(bad in text for text in page.texts) == 7
    facts = RunFacts("failed", "1", [f"a\n\n{bad}"], [f"b\n\n{bad}"])
    page = _read(markdown_summary(facts, []))
    assert page.tags <= OURS
    assert sum(bad in text for text in page.texts) == 2
    assert escaped("ask @team, a@b: http://x") == "ask @\u200bteam, a@b: http\\://x"


def test_a_run_without_cases_says_why() -> None:
    """Problems and set-up stand there without a table."""
    text = markdown_summary(FACTS, [])
    assert "a worker &lt;i&gt;died" in text
    assert "|" not in text
    assert SECRET not in markdown_summary(FACTS, [FULL])


def test_the_headline_is_the_title_and_undecided_cases_say_what_they_need() -> None:
    """A job summary begins with it, and says what the samples see and how many would see more."""
    case = replace(FULL, verdict="inconclusive", visible=0.0625, needed=420, looks=[50])
    title = "Undecided: 1 of 1 gating case; 50 samples see drops from 0.0625; 420 would see 0.01"
    facts = RunFacts("passed", "1", [], [], headline=title)
    lines = markdown_summary(facts, [case]).splitlines()
    assert lines[0] == f"## {title}"
    told = "50 samples see drops from 0.0625; 420 would see 0.25"
    assert f"- cannot tell\\: toy color GC@2\\: {told}".replace("\\:", ":") in [
        line.replace("\\", "") for line in lines
    ]
    assert any(line.startswith("**Next:** ") for line in lines)
