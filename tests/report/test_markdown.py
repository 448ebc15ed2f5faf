"""The Markdown summary, read by a parser as CI systems do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.headline import undecided
from pytest_cepbench.report.markdown import escaped, markdown_summary
from pytest_cepbench.report.writers import RunFacts
from tests.report.pages import Page, read_page
from tests.report.results import FULL, REGRESSED, RESULTS, SECRET, replace
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
    """Whatever it is made of, a summary has a row for each case, one more for each undecided one,
    and no markup but its own.
    """
    summary = markdown_summary(RunFacts("failed", "1", [text], [text]), results)
    assert hides_nothing(summary.replace("@\u200b", "@"), "\n")
    html = _html(summary)
    assert read_page(html).tags <= OURS
    assert html.count("<td") == 9 * len(results) + 6 * len(undecided(results))


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
    assert sum(bad in text for text in page.texts) == 6
    facts = RunFacts("failed", "1", [f"a\n\n{bad}"], [f"b\n\n{bad}"])
    page = _read(markdown_summary(facts, []))
    assert page.tags <= OURS
    assert sum(bad in text for text in page.texts) == 2
    assert escaped("ask @team, a@b: http://x") == "ask @\u200bteam, a@b: http\\://x"


def test_a_summary_in_full() -> None:
    """The text as a whole, so that a change of any part of it is seen in review."""
    held = replace(
        FULL, verdict="held", part="overall", difference=0.0, p=0.5, low=-0.005, high=0.005
    )
    new = replace(REGRESSED, verdict="no-baseline", baseline=None, difference=None)
    assert markdown_summary(FACTS, [FULL, held, new]) == (
        "## cepbench: failed\n"
        "\n"
        "- **incomplete:** a worker &lt;i&gt;died&lt;/i&gt;\n"
        "- 3 gating cases: 1 held, 1 regressed, 1 no-baseline\n"
        "- 2.5 % false failures at most per run of checkpoints exchangeable with the baseline, "
        "over 2 cases\n"
        "- **warning:** toy color GC@2 and 1 more: the measurement is close to what chance gives\n"
        "\n"
        "| verdict | case | now | baseline | change | bounds | p | tolerance | n |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
        "| **REGRESSED** | toy color GC@2 | 0.5000 | 0.7500 | -0.2500 | - "
        "| 0.00042 | 0.0100 | 50 |\n"
        "| **NO-BASELINE** | toy color GC@2 | 0.5000 | - | - | - | - | 0.0100 | 2 |\n"
        "\n"
        "**What failed:**\n"
        "\n"
        "- toy color GC@2 regressed: difference -0.2500 \\[-0.3125, -0.1875\\], "
        "p 0.00042, tolerance 0.0100, n = 50\n"
        "- toy color GC@2 no-baseline: nothing has been accepted yet to compare with\n"
        "\n"
        "<details><summary>1 held</summary>\n"
        "\n"
        "| verdict | case | now | baseline | change | bounds | p | tolerance | n |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
        "| HELD | toy overall GC@2 | 0.5000 | 0.7500 | +0.0000 | \\[-0.0050, +0.0050\\] | 0.5 "
        "| 0.0100 | 50 |\n"
        "\n"
        "</details>\n"
        "\n"
        "<details><summary>what the set-up can see</summary>\n"
        "\n"
        "- toy color GC@2: 0.75 of a range from 0.25 (chance) to 1: this set-up can see a drop "
        "of at most 0.5\n"
        "- toy overall GC@2: 0.75 of a range from 0.25 (chance) to 1: this set-up can see a drop "
        "of at most 0.5\n"
        "\n"
        "</details>\n"
        "\n"
        "0 model loads, 0 model inputs (0.0 s in models), 0 results from the store\n"
        "\n"
        "**Set-up:**\n"
        "\n"
        "- model under test: &lt;b&gt;x&lt;/b&gt;\n"
        "\n"
        "pytest-cepbench 1.2.3\n"
    )


def test_a_run_without_cases_says_why() -> None:
    """Problems and set-up stand there without a table."""
    text = markdown_summary(FACTS, [])
    assert "a worker &lt;i&gt;died" in text
    assert "|" not in text
    assert SECRET not in markdown_summary(FACTS, [FULL])


def test_the_headline_is_the_title_and_undecided_cases_say_what_they_need() -> None:
    """A job summary begins with it; the table has the samples now and needed, and what is seen."""
    case = replace(FULL, verdict="inconclusive", visible=0.0625, needed=420, looks=[50])
    title = "Undecided: 1 of 1 gating case; about 420 samples would decide (now 50)"
    facts = RunFacts("passed", "1", [], [], headline=title)
    lines = markdown_summary(facts, [case]).splitlines()
    assert lines[0] == f"## {title}"
    assert "| INCONCLUSIVE | toy color GC@2 | 50 | 420 | 0.0625 | 0.0100 |" in lines
