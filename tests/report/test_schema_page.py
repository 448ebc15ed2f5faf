"""The page on the JSON report: every field with its type, and no field that is not there."""

from __future__ import annotations

import types
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from pytest_cepbench.gate import Baseline, Noise, Verdict
from pytest_cepbench.gate.baseline import Spread
from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.report import (
    AnchorShown,
    AnswerShown,
    BaselineModel,
    CaseResult,
    ChainShown,
    CurveShown,
    FactKindShown,
    FactsShown,
    FactTableShown,
    HopShown,
    LinkShown,
    ModelShown,
    RoleLossShown,
    SeriesShown,
    StepShown,
    UsageTotals,
)
from pytest_cepbench.report.provenance import Provenance, SuiteProvenance
from pytest_cepbench.report.writers import PREFIX, SCHEMA, RunFacts, json_document, properties_of
from tests.docs.markdown import DOCS, column, tables
from tests.report.results import REGRESSED

PAGE = DOCS / "report-schema.md"

_NAMES: dict[Any, str] = {
    CaseResult: "Case",
    FactsShown: "Facts",
    FactKindShown: "FactKind",
    FactTableShown: "FactTable",
    RoleLossShown: "RoleLoss",
    ModelShown: "Model",
    BaselineModel: "BaselineModel",
    Provenance: "Provenance",
    SuiteProvenance: "SuiteProvenance",
    AnchorShown: "Anchor",
    SeriesShown: "Series",
    HopShown: "Hop",
    ChainShown: "Chain",
    CurveShown: "Curve",
    LinkShown: "Link",
    AnswerShown: "Answer",
    StepShown: "Step",
    UsageTotals: "Effort",
    Usage: "Usage",
    Baseline: "Measured",
    Noise: "Noise",
    Spread: "Spread",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    types.NoneType: "null",
}


def _named(kind: Any) -> str:
    """A type as the page writes it."""
    if kind in _NAMES:
        return _NAMES[kind]
    inner = [_named(argument) for argument in get_args(kind)]
    if get_origin(kind) is list:
        return f"list of {inner[0]}"
    if get_origin(kind) is dict:
        return f"object of {inner[1]}"
    return " or ".join(inner)


@pytest.mark.parametrize(
    "record",
    [kind for kind in _NAMES if issubclass(kind, msgspec.Struct) or is_dataclass(kind)],
    ids=_NAMES.get,
)
def test_fields_are_described_with_their_types(record: type) -> None:
    """The table of a record has its fields in their order, each with its type, and no others."""
    (rows,) = tables(PAGE, _NAMES[record])
    assert [(column([row])[0], row[1]) for row in rows] == [
        (name, _named(kind)) for name, kind in get_type_hints(record).items()
    ]
    assert all(row[2] for row in rows)


def test_document_is_described() -> None:
    """The table of the document has its fields in their order."""
    (rows,) = tables(PAGE, "Document")
    document = json_document(RunFacts("passed", "0", [], []), [])
    assert [column([row])[0] for row in rows] == list(msgspec.json.decode(document))


def test_the_page_is_about_this_schema() -> None:
    """The number is the one that is written, and the history ends with it."""
    text = PAGE.read_text(encoding="utf-8")
    (rows,) = tables(PAGE, "Versions")
    assert f"This page describes {SCHEMA}." in text
    assert f"version of this document, {SCHEMA} " in text
    assert [row[0] for row in rows] == [str(number) for number in range(1, SCHEMA + 1)]


def test_verdicts_are_described() -> None:
    """Every verdict that a case can have is named, best first."""
    (rows,) = tables(PAGE, "Case")
    (row,) = [row for row in rows if row[0] == "`verdict`"]
    assert set(column([row], 2)) == {str(verdict) for verdict in Verdict}


def test_properties_are_described() -> None:
    """The table has every property of a test in a JUnit file."""
    (rows,) = tables(PAGE, "In JUnit files")
    full = msgspec.structs.replace(
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
