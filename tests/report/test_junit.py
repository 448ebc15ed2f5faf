"""What programs read of a case: JUnit's properties, and the page of the schema."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report import CaseResult, SeriesShown
from pytest_cepbench.report.writers import PREFIX, SCHEMA, RunFacts, json_document, properties_of
from tests.docs.markdown import DOCS, column, tables
from tests.report.results import FULL, REGRESSED, RESULTS, replace
from tests.test_escapes import hides_nothing


def test_properties_of_a_case_in_full() -> None:
    """Names, order and texts, as programs read them."""
    assert properties_of(FULL) == [
        ("cepbench_case", "toy/color/gc"),
        ("cepbench_verdict", "regressed"),
        ("cepbench_value", "0.5"),
        ("cepbench_baseline", "0.75"),
        ("cepbench_difference", "-0.25"),
        ("cepbench_p", "0.00042"),
        ("cepbench_low", "-0.3125"),
        ("cepbench_high", "-0.1875"),
        ("cepbench_alpha", "0.0125"),
        ("cepbench_tolerance", "0.01"),
        ("cepbench_n", "50"),
        ("cepbench_primary", "true"),
        ("cepbench_warning", "the measurement is close to what chance gives"),
    ]


def test_what_is_not_known_is_left_out() -> None:
    """No property stands for a number that is not there; what was accepted has not failed."""
    names = dict(properties_of(replace(REGRESSED, accepted=True, primary=False)))
    assert not {"cepbench_low", "cepbench_high", "cepbench_alpha"} & names.keys()
    assert (names["cepbench_verdict"], names["cepbench_primary"]) == ("accepted", "false")


@given(RESULTS)
def test_numbers_are_read_back_as_they_were(result: CaseResult) -> None:
    """Not rounded: a program that compares them sees what the JSON has."""
    properties = dict(properties_of(result))
    for name in ("value", "baseline", "difference", "low", "high", "alpha", "tolerance", "n"):
        text = properties.get(f"cepbench_{name}")
        assert (None if text is None else float(text)) == result.numbers[name]


@given(RESULTS)
def test_only_plain_text_is_attached(result: CaseResult) -> None:
    """Exact str in UTF-8 without control characters, also of a name that is none."""
    hostile = replace(result, part=f"\ud83d\x00\x1b{result.part}")
    for name, text in properties_of(hostile):
        assert (type(name), type(text)) == (str, str)
        assert hides_nothing(text.encode().decode())


def test_they_reach_a_junit_file(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """The file that pytest writes has them on the test, whatever a category is called."""
    odd = replace(FULL, part="<a & \ud83d\x1b>")
    pytester.makepyfile(
        f"def test_one(request):\n    request.node.user_properties.extend({properties_of(odd)!r})\n"
    )
    target = tmp_path / "junit.xml"
    assert pytester.runpytest_inprocess(f"--junitxml={target}", "-p", "no:cepbench").ret == 0
    properties = [
        (entry.get("name"), entry.get("value")) for entry in ET.parse(target).iter("property")
    ]
    assert properties == properties_of(odd)
    assert properties[0] == ("cepbench_case", r"toy/<a & \ud83d\x1b>/gc")


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
