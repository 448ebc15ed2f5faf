"""What became of facts, in every report: by kind, by role, and what cannot be said."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pytest_cepbench.escapes import width_of
from pytest_cepbench.evaluation.shown_chains import shown_facts
from pytest_cepbench.metrics.fact_losses import Role, summarize_facts
from pytest_cepbench.metrics.facts import FactAnswers
from pytest_cepbench.report import CaseResult, FactsShown
from pytest_cepbench.report.ci_reports import markdown_summary
from pytest_cepbench.report.fact_table import (
    PAIR_HEADS,
    fact_lines,
    kind_heads,
    kind_rows,
    pair_rows,
    step_heads,
    step_rows,
)
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.text import explain, promise_lines
from pytest_cepbench.report.writers import RunFacts
from tests.report.pages import assert_self_contained, read_page
from tests.report.results import INVENTED, REGRESSED, replace

COUNT, COLOR = "count", "color"


def _facts(colors: list[list[float]], counts: list[float]) -> FactsShown:
    """Of 40 equal samples with two colors and a count, through two iterations."""
    answers = FactAnswers((COUNT, COLOR, COLOR), np.array([counts, *colors]), {}, {})
    roles: tuple[Role, ...] = ("describer", "generator", "describer", "generator")
    names = [f"{i}" for i in range(40)]
    return shown_facts(summarize_facts([answers] * 40, names, (1, 2, 3, 4), roles))


LOSING = _facts([[1, 1, 1, 1], [0, 0, 0, 1]], [1, 0, 0, 0])
"""A describer loses one color of two, which comes back; a generator loses every count."""

WHOLE = _facts([[1, 1, 1, 1], [1, 1, 1, 1]], [1, 1, 1, 1])


def _case(facts: FactsShown | None) -> CaseResult:
    return replace(REGRESSED, metric="truth", label="truth F1", part="overall", facts=facts)


def test_the_rows_of_each_kind() -> None:
    """What is right at the end, half-life with its interval, and what each role's steps lose."""
    assert kind_heads(LOSING) == (
        "facts", "n", "right at 4", "half-life (95 %)", "text loses", "picture loses",
    )  # fmt: skip
    count, color, every = kind_rows(LOSING)
    assert count == ("count", "40", "0 %", "1.5 (1.5 to 1.5)", "0 %", "100 %")
    assert color[:3] == ("color", "80", "100 %")
    assert color[3].startswith("1.0 (")
    assert color[4:] == ("33.3 %", "0 %")
    assert every[:2] == ("all kinds", "120")


def test_what_changes_comes_back_and_is_invented() -> None:
    """By kind and role: a drawing of what a text invented invents nothing, so it has no line."""
    assert step_heads(INVENTED) == ("facts", "artifact", "changed", "regained", "not true", "new")
    assert list(step_rows(INVENTED)) == [
        ("object", "text", "0 %", "-", "66.7 %", "33.3 %"),
        ("color", "text", "100 %", "100 %", "50 %", "50 %"),
        ("all kinds", "text", "33.3 %", "100 %", "62.5 %", "37.5 %"),
    ]
    assert list(step_rows(WHOLE)) == []


def test_every_report_shows_what_is_invented() -> None:
    """Terminal, page and summary have the same rows, and say that most of it is invented."""
    facts = RunFacts("failed", "1", [], [])
    rows = [" ".join(line.split()) for line in explain(_case(INVENTED)).splitlines()]
    assert "all kinds text 33.3 % 100 % 62.5 % 37.5 %" in rows
    page = read_page(html_page(facts, [_case(INVENTED)], lambda _: None))
    assert "62.5 %" in page.text
    assert "37.5 %" in page.text
    assert "| all kinds | text | 33.3 % | 100 % | 62.5 % | 37.5 % |" in markdown_summary(
        facts, [_case(INVENTED)]
    )
    sentence = "most of it is invented: 100 claims are not true, 20 facts are missing"
    assert sentence in fact_lines([_case(INVENTED)])[0]
    assert sentence in page.text
    assert "invented" not in fact_lines([_case(LOSING)])[0]


def test_checkers_that_are_only_asked_know_what_is_regained() -> None:
    """They list no claims, so there is no column about them."""
    asked = FactAnswers((COLOR,), np.array([[0.0, 1.0]]))
    facts = shown_facts(summarize_facts([asked], ["a"], (1, 2), ("describer", "generator")))
    assert step_heads(facts) == ("facts", "artifact", "regained")
    assert list(step_rows(facts)) == [("color", "picture", "100 %")]
    assert "not true" not in explain(_case(facts))


def test_the_pairs_are_shares_of_the_facts() -> None:
    """Text 1 has the count that picture 2 lacks; both have one color of two."""
    assert len(PAIR_HEADS) == 5
    assert list(pair_rows(LOSING.kinds[0])) == [
        ("1, 2", "0.0 %", "100.0 %", "0.0 %", "0.0 %"),
        ("3, 4", "0.0 %", "0.0 %", "0.0 %", "100.0 %"),
    ]
    assert list(pair_rows(LOSING.kinds[1])) == [
        ("1, 2", "50.0 %", "0.0 %", "0.0 %", "50.0 %"),
        ("3, 4", "50.0 %", "0.0 %", "50.0 %", "0.0 %"),
    ]


def test_one_sentence_for_the_run() -> None:
    """The kind that goes first and the role that loses most; nothing more where nothing is lost."""
    (line,) = fact_lines([_case(LOSING), _case(None)])
    assert line.startswith("facts of toy overall [truth]: 66.7 % of 120 right after 4 generations")
    assert "half-life of color, the shortest: 1.0" in line
    assert "a drawing loses" in line
    (kept,) = fact_lines([_case(WHOLE)])
    assert kept == "facts of toy overall [truth]: 100 % of 120 right after 4 generations"
    assert line in promise_lines([_case(LOSING)])


def test_a_failed_case_shows_them_in_its_message() -> None:
    """Kinds, pairs and roles, within the width of a narrow terminal."""
    lines = explain(_case(LOSING)).splitlines()
    assert any(line.split()[:2] == ["facts", "n"] for line in lines)
    assert any(line.strip().startswith("1, 2 ") for line in lines)
    assert all(width_of(line) <= 80 for line in lines)
    assert "half-life" not in explain(_case(None))


def test_the_page_draws_the_tables() -> None:
    """A square for each pair with its numbers in words, and kinds one by one; alone, no script."""
    html = html_page(RunFacts("failed", "1", [], []), [_case(LOSING)], lambda _: None)
    assert_self_contained(html)
    page = read_page(html)
    labels = [label for label in page.values("aria-label") if label.startswith("text ")]
    assert len(labels) == 2
    assert labels[0].startswith("text 1 and picture 2: right in both 33.3 %")
    assert "What became of facts" in page.text
    assert "kind by kind" in page.text
    plain = read_page(html_page(RunFacts("failed", "1", [], []), [REGRESSED], lambda _: None))
    assert "What became of facts" not in plain.text


def test_the_summary_in_markdown_has_them_folded_away() -> None:
    """Tables of kinds and pairs below a summary of their own."""
    summary = markdown_summary(RunFacts("failed", "1", [], []), [_case(LOSING)])
    assert "truth F1: what became of facts</summary>" in summary
    assert "| count | 40 | 0 % | 1.5 (1.5 to 1.5) | 0 % | 100 % |" in summary
    assert "| 1, 2 |" in summary


def test_answers_that_are_missing_are_counted() -> None:
    """What no checker answered is no number: a dash, and how many there are."""
    nothing = np.full((1, 2), np.nan)
    answers = [FactAnswers((COLOR,), nothing), FactAnswers((COUNT,), np.ones((1, 2)))]
    roles: tuple[Role, ...] = ("describer", "generator")
    facts = shown_facts(summarize_facts(answers, ["a", "b"], (1, 2), roles))
    rows = {row[0]: row for row in kind_rows(facts)}
    assert rows[COLOR][2:] == ("-", "-", "-", "-")
    assert list(pair_rows(facts.kinds[1])) == [("1, 2", "-", "-", "-", "-")]
    assert facts.unanswered == 2
    assert not facts.precision
    page = read_page(html_page(RunFacts("failed", "1", [], []), [_case(facts)], lambda _: None))
    assert "did not give: 2" in page.text
    assert "2 answers are missing" in fact_lines([_case(facts)])[0]


def test_they_cross_the_wire_unchanged() -> None:
    """Numbers that no float can be, such as NaN, are None before a report is written."""
    nothing = FactAnswers((COLOR,), np.array([[np.nan, 1.0]]))
    facts = shown_facts(summarize_facts([nothing], ["a"], (1, 2), ("describer", "generator")))
    case = _case(facts)
    assert msgspec.json.decode(msgspec.json.encode(case), type=CaseResult) == case
    assert facts.every.curve == [None, pytest.approx(1.0)]
