"""Every report of whatever a run can judge: nothing is hidden or obeyed; what programs read."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import WriteError
from pytest_cepbench.escapes import width_of
from pytest_cepbench.evaluation.run_result import exit_code, nothing_compared
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.ci_reports import annotation_lines, markdown_summary
from pytest_cepbench.report.headline import gating, headline, worst_first
from pytest_cepbench.report.history import History, run_record, timelines_of
from pytest_cepbench.report.history_page import history_page
from pytest_cepbench.report.number_format import name_of, word_of
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.plots import change_plot, reach_of
from pytest_cepbench.report.result import CaseResult, CurveShown, SeriesShown
from pytest_cepbench.report.tables import summary_table, text_of
from pytest_cepbench.report.text import explain, figures_first, promise_lines
from pytest_cepbench.report.totals import count_verdicts, run_alpha
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
from tests.report.pages import (
    SUMMARY_TAGS,
    assert_self_contained,
    html_of,
    parse_command,
    read_page,
)
from tests.report.results import (
    ANSWERED,
    FACTS,
    FULL,
    INVENTED,
    MEASURED,
    REGRESSED,
    RESULTS,
    origin,
    replace,
)
from tests.test_escapes import hides_nothing

FEW = settings(max_examples=15)  # each result has some hundred texts and numbers

LISTS = st.lists(RESULTS, min_size=1, max_size=2)


@FEW
@given(LISTS, st.integers(1, 3), st.text(max_size=20))
def test_markup_shows_any_text_and_obeys_none(
    results: list[CaseResult], runs: int, text: str
) -> None:
    """Pages stay whole and load nothing; a summary has a row for each case and its own markup; an
    interval lies inside of its frame.
    """
    html = html_page(replace(FACTS, results=results), lambda _: None)
    assert_self_contained(html)
    assert hides_nothing(html, "\n\t")
    words = " ".join(read_page(html).text.split())
    parts = [result.part for result in results]
    assert all(" ".join(part.split()) in words for part in parts if part.isprintable())

    records = tuple(run_record(origin(number), results) for number in range(runs))
    timelines = timelines_of(records)
    html = history_page(History(Path("history"), records), records, timelines, Path("/somewhere"))
    assert read_page(html).text
    assert hides_nothing(html, "\n\t")

    summary = markdown_summary(replace(FACTS, setup=[text], problems=[text], results=results))
    assert hides_nothing(summary.replace("@\u200b", "@"), "\n")
    html = html_of(summary)
    assert read_page(html).tags <= SUMMARY_TAGS
    assert html.count("<td") == 9 * len(results)

    for plot in filter(None, (change_plot(result, reach_of(results)) for result in results)):
        shapes = [shape.attrib for shape in ET.fromstring(plot).iter()]
        places = [s[name] for s in shapes for name in ("x", "x1", "x2", "cx", "width") if name in s]
        assert all(0 <= float(place.rstrip("%")) <= 100 for place in places)


@FEW
@given(LISTS, st.integers(30, 140), st.booleans())
def test_lines_show_any_text_and_obey_none(
    results: list[CaseResult], columns: int, grouped: bool
) -> None:
    """A terminal has no control character to obey, and a table of its width with every case; a
    line for GitHub is one command whose properties are ours.
    """
    table = [text_of(line) for line in summary_table(results, columns, grouped=grouped)]
    words = sorted(word_of(result) for result in results)
    assert sorted(line.split()[0] for line in table if line.startswith(tuple(words))) == words
    assert max(map(width_of, table)) <= columns

    part, nodeid = "\x1b[2J,title=x::%0A\r\n::error::", "a,%0A::b"
    hostile = [
        replace(result, part=f"{part}{result.part}", nodeid=nodeid, reasons=["\x07\x9b1m"])
        for result in results
    ]
    lines = [*promise_lines(hostile), *map(text_of, summary_table(hostile))]
    for result in hostile:
        lines += [*explain(result).split("\n"), figures_first(result)]
    assert all(map(hides_nothing, lines))

    commands = list(annotation_lines(hostile, (), Path("/checkout/gates"), Path("/checkout")))
    failing = [result for result in hostile if not result.passes]
    open_cases = any(case.verdict == "inconclusive" and case.passes for case in gating(hostile))
    assert len(commands) == min(3, len(failing)) + open_cases
    if open_cases:
        assert parse_command(commands.pop())[0] == {"title": "cepbench: undecided"}
    for command, result in zip(commands, worst_first(hostile), strict=False):
        properties, message = parse_command(command)
        assert not re.search(r"[\r\n]", command)
        assert set(properties) == {"file", "title"}
        assert properties["title"] == f"cepbench: {name_of(result)} {result.word.lower()}"
        assert result.suite in message


@FEW
@given(LISTS)
def test_programs_read_any_result_as_it_was(results: list[CaseResult]) -> None:
    """JSON keeps every field; the cells of a table are no formulas; properties for JUnit are exact
    numbers and plain text.
    """
    text = json_document(replace(FACTS, results=results))
    assert hides_nothing(text, "\n")
    document = msgspec.json.decode(text, type=Document)
    assert absent_field(text.encode(), document) == ""
    assert (document.schema, document.cepbench, document.verdict) == (SCHEMA, "1.2.3", "failed")
    assert (document.setup, document.problems) == (FACTS.setup, FACTS.problems)
    assert document.alpha == run_alpha(results)
    assert document.cases == results
    assert list(json.loads(text)) == list(Document.__struct_fields__)

    rows = list(csv.DictReader(io.StringIO(csv_table(results, RUN), newline="")))
    assert [row["part"].removeprefix("'") for row in rows] == [
        result.part.removeprefix("'") for result in results
    ]
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())

    for result in results:
        hostile = replace(result, part=f"\ud83d\x00\x1b{result.part}")
        properties = dict(properties_of(hostile))
        for name, value in properties.items():
            assert (type(name), type(value)) == (str, str)
            assert hides_nothing(value.encode().decode())
        for name in ("value", "baseline", "difference", "low", "high", "alpha", "tolerance", "n"):
            known = properties.get(f"cepbench_{name}")
            assert (None if known is None else float(known)) == result.numbers[name]


@FEW
@given(LISTS, st.lists(st.just("1 tests did not report: a"), max_size=1), st.booleans())
def test_headline_and_counts_never_contradict_the_exit_code(
    results: list[CaseResult], problems: list[str], skip: bool
) -> None:
    """The sentence begins with May ship, Undecided or Accepted in runs of exit code 0 alone; every
    case is counted once.
    """
    skipped = {"x": "no data"} if skip else {}
    sentence = headline(results, problems, skipped=skipped)
    code = exit_code(results, lambda: problems)
    if code == 0 and nothing_compared(results, skipped):
        code = 5
    assert sentence.startswith(("May ship: ", "Undecided: ", "Accepted: ")) is (code == 0)
    assert sentence.isprintable()

    counts = count_verdicts(results)
    assert sum(counts.values()) == len(results)
    assert all(counts.values())
    harmless = ("held", "improved", "inconclusive", "accepted", "informational")
    judged = [result for result in results if not result.refused]
    strict = sum(result.verdict == "inconclusive" and not result.passes for result in judged)
    # An incomplete run fails also by a case that cannot fail it otherwise.
    lost = [r for r in judged if r.verdict == "incomplete" and not r.primary and not r.passes]
    remarkable = sum(count for name, count in counts.items() if name not in harmless)
    assert remarkable + strict + len(lost) == sum(not result.passes for result in results)


# -- JSON, JUnit's properties, CSV, and the page of the schema -------------------------------------


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
