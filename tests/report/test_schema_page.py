"""The page on the JSON report, whose tables docs/generate.py writes from the types."""

from __future__ import annotations

import msgspec

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report import SeriesShown
from pytest_cepbench.report.writers import PREFIX, SCHEMA, RunFacts, json_document, properties_of
from tests.docs.markdown import DOCS, column, tables
from tests.report.results import REGRESSED, replace

PAGE = DOCS / "report-schema.md"


def test_document_is_described() -> None:
    """The table of the document has its fields in their order, and of each record all of them."""
    (rows,) = tables(PAGE, "Document")
    document = msgspec.json.decode(json_document(RunFacts("passed", "0", [], []), [REGRESSED]))
    assert column(rows) == list(document)
    (case,) = document["cases"]
    for name, record in (
        ("Case", case),
        ("Measurement", case["measurement"]),
        ("Judgement", case["judgement"]),
        ("Shown", case["shown"]),
        ("Effort", case["effort"]),
    ):
        (rows,) = tables(PAGE, name)
        assert column(rows) == list(record)
        assert all(all(row) for row in rows)


def test_the_page_is_about_this_schema() -> None:
    """The number is the one that is written, and the history ends with it."""
    (rows,) = tables(PAGE, "Versions")
    assert f"This page describes {SCHEMA}." in PAGE.read_text(encoding="utf-8")
    assert [row[0] for row in rows] == [str(number) for number in range(1, SCHEMA + 1)]


def test_verdicts_are_described() -> None:
    """Every verdict that a case can have is named, best first."""
    (rows,) = tables(PAGE, "Judgement")
    (row,) = [row for row in rows if row[0] == "`verdict`"]
    assert column([row], 2) == [str(verdict) for verdict in Verdict]


def test_properties_are_described() -> None:
    """The table has every property of a test in a JUnit file."""
    (rows,) = tables(PAGE, "In JUnit files")
    full = replace(
        REGRESSED,
        p=0.01,
        low=-0.3,
        high=-0.2,
        alpha=0.05,
        warnings=["odd"],
        judge="known",
        series=SeriesShown(name="run-1", look=1, expected=40, alpha=0.001),
    )
    named = [name.removeprefix(PREFIX) for name, _ in properties_of(full)]
    assert column(rows) == named
