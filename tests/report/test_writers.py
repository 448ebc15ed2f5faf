"""What programs read of a run: JSON, JUnit's properties, CSV, and the page of the schema."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from pytest_cepbench.errors import WriteError
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.result import CaseResult, CurveShown, SeriesShown
from pytest_cepbench.report.writers import (
    COLUMNS,
    PREFIX,
    SAMPLE_COLUMNS,
    SCHEMA,
    Document,
    RunOutcome,
    absent_field,
    csv_table,
    json_document,
    properties_of,
    write_reports,
)
from tests.docs.markdown import DOCS, column, tables
from tests.report.results import ANSWERED, FACTS, FULL, INVENTED, MEASURED, REGRESSED, replace

PAGE = DOCS / "report-schema.md"


def _paths(value: Any, record: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the fields of all records in a document stand."""
    if isinstance(value, list):
        for place, (item, own) in enumerate(zip(value, cast("list[object]", record), strict=True)):
            yield from _paths(item, own, (*path, place))
    elif isinstance(value, dict) and not isinstance(record, dict):
        for name, item in value.items():
            yield (*path, name)
            yield from _paths(item, getattr(record, name), (*path, name))


def test_no_field_of_any_record_may_be_absent() -> None:
    """Also of those that have a default, which would stand for what was cut out."""
    case = replace(
        FULL,
        answers=ANSWERED.shown.answers,
        facts=INVENTED,
        curve_now=CurveShown([2], [0.5], [0.4], [0.6], 9),
    )
    text = json_document(replace(FACTS, results=[case])).encode()
    assert absent_field(text, msgspec.json.decode(text, type=Document)) == ""
    paths = list(_paths(json.loads(text), msgspec.json.decode(text, type=Document)))
    assert len(paths) > 200
    for *path, name in paths:
        document = json.loads(text)
        place = document
        for key in path:
            place = place[key]
        del place[name]
        data = json.dumps(document).encode()
        with suppress(msgspec.ValidationError):  # it has no default
            read = msgspec.json.decode(data, type=Document)
            assert absent_field(data, read) == ".".join(map(str, (*path, name)))


def test_reports_replace_older_ones_at_once(tmp_path: Path) -> None:
    """All files lie beside each other under the given name; no half-written file is left.

    Points in a name are no suffix: models and checkpoints have versions and numbers, and two of
    them are two reports. Points alone are no name.
    """
    target = tmp_path / "new" / "run.json"
    for text in ("old", "new \ud800"):
        written = write_reports(target, {".json": text, ".html": text})
    assert written == [tmp_path / "new" / "run.json", tmp_path / "new" / "run.html"]
    assert [path.read_text() for path in written] == ["new ?", "new ?"]
    assert sorted(path.name for path in target.parent.iterdir()) == ["run.html", "run.json"]
    folder = tmp_path / "names"
    for name in ("epoch-1.25", "epoch-1.50", "step.json", "run.md", "plain"):
        write_reports(folder / name, {".json": name, ".html": name})
    for name in ("/", ".", ".."):
        with pytest.raises(WriteError, match="is a folder: name a file"):
            write_reports(Path(name), {".html": "x"})
    stems = ("epoch-1.25", "epoch-1.50", "plain", "run", "step")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{stem}{suffix}" for stem in stems for suffix in (".html", ".json")
    )


# -- JUnit -----------------------------------------------------------------------------------------


def test_properties_of_a_case_in_full() -> None:
    """Names, order and texts, as programs read them; what is not known is left out."""
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
    names = dict(properties_of(replace(REGRESSED, accepted=True, primary=False)))
    assert not {"cepbench_low", "cepbench_high", "cepbench_alpha", "cepbench_series"} & names.keys()
    assert (names["cepbench_verdict"], names["cepbench_primary"]) == ("accepted", "false")


# -- the page of the schema ------------------------------------------------------------------------


def test_document_is_described() -> None:
    """The table of the document has its fields in their order, and of each record all of them; that
    of JUnit files has every property of a test.
    """
    (rows,) = tables(PAGE, "Document")
    document = msgspec.json.decode(json_document(RunOutcome("passed", results=[REGRESSED])))
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
    (rows,) = tables(PAGE, "Versions")
    assert [row[0] for row in rows] == [str(number) for number in range(1, SCHEMA + 1)]
    (rows,) = tables(PAGE, "Judgement")
    (row,) = [row for row in rows if row[0] == "`verdict`"]
    assert column([row], 2) == [str(verdict) for verdict in Verdict]
    (rows,) = tables(PAGE, "In JUnit files")
    series = SeriesShown(name="run-1", look=7, expected=40, alpha=0.0003)
    full = replace(FULL, judge="known", series=series)
    properties = dict(properties_of(full))
    assert column(rows) == [name.removeprefix(PREFIX) for name in properties]
    assert (properties["cepbench_series"], properties["cepbench_series_checkpoint"]) == (
        "run-1", "7",
    )  # fmt: skip
    assert float(properties["cepbench_series_alpha"]) == 0.0003


# -- CSV -------------------------------------------------------------------------------------------

RUN = {"run": "gate-7", "run_verdict": "failed", "step": 7, "model": "runs/1/step-7"}

UNMEASURED = replace(
    FULL, part="broken", verdict="error", value=None, baseline=None, difference=None, low=None,
    high=None, reasons=["no space left", "on the disk"],
)  # fmt: skip

SCORES = {"red": {"a": 0.5, "=b": 0.75}, "round": {"a": 0.5, "c": 0.25}}

SAMPLED = replace(
    FULL, measured=replace(MEASURED, scores=SCORES), differences={"=b": 0.25, "a": -0.25}
)


def _read(*cases: CaseResult, samples: bool = False) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_table(cases, RUN, samples=samples), newline="")))


def test_a_row_for_each_case_or_sample() -> None:
    """Numbers as the JSON report has them; what is not known is empty. Samples that lost most come
    first; what was not compared has no baseline and no reference.
    """
    regressed, unmeasured = _read(FULL, UNMEASURED)
    assert tuple(regressed) == COLUMNS
    assert {name: regressed[name] for name in RUN} == {k: str(v) for k, v in RUN.items()}
    assert (regressed["verdict"], regressed["primary"], regressed["passes"]) == (
        "regressed", "true", "false",
    )  # fmt: skip
    for name, value in FULL.numbers.items():
        assert float(regressed[name]) == value
    assert [unmeasured[name] for name in ("value", "baseline", "low")] == ["", "", ""]
    assert unmeasured["reasons"] == "no space left; on the disk"
    first, second, third = _read(SAMPLED, UNMEASURED, samples=True)
    assert tuple(first) == SAMPLE_COLUMNS
    names = ("suite", "sample", "categories", "value", "baseline", "difference", "reference")
    assert [first[n] for n in names] == [
        "toy", "a", "red; round", "0.5", "0.75", "-0.25", "baseline",
    ]  # fmt: skip
    assert second["sample"] == "'=b"  # a spreadsheet would compute it
    assert [third[n] for n in names[3:]] == ["0.25", "", "", ""]
