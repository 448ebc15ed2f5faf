"""What is known of judges: a line for each, in every report, whatever a card holds."""

from __future__ import annotations

from pytest_cepbench.report.markdown import markdown_summary
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.text import explain, promise_lines
from pytest_cepbench.report.totals import judge_lines
from pytest_cepbench.report.writers import RunFacts
from tests.report.results import FULL, replace

FACTS = RunFacts("failed", "1.2.3", ["model under test: x"], [])

HOSTILE = "agreement 0.82 with <script>|[x](y)\x1b[31m"


def test_each_judge_has_one_line() -> None:
    """With the suites whose cases it judged; cases without verdicts add none."""
    cases = [
        replace(FULL, suite="a", judge="known"),
        replace(FULL, suite="a", part="other", judge="known"),
        replace(FULL, suite="b", judge="known"),
        replace(FULL, suite="c", judge="unknown"),
        replace(FULL, suite="d"),
    ]

    assert judge_lines(cases) == ["judge of a, b: known", "judge of c: unknown"]
    assert promise_lines(cases).count("judge of a, b: known") == 1
    assert "judge of" not in "\n".join(promise_lines([FULL]))


def test_what_a_card_says_is_shown_harmlessly() -> None:
    """Cards come with a repository: no markup, no escape sequences."""
    case = replace(FULL, judge=HOSTILE)
    page = html_page(FACTS, [case], lambda _: None)
    markdown = markdown_summary(FACTS, [case])

    assert "agreement 0.82 with" in page
    assert "<script>|" not in page
    assert "agreement 0.82 with &lt;script&gt;&#124;" in markdown.replace("\\", "")
    assert "  judge: agreement 0.82" in explain(case)
    for text in (page, markdown, explain(case), *promise_lines([case])):
        assert "\x1b" not in text
