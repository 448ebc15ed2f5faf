"""Every report of whatever a run can judge: nothing is hidden, obeyed or contradicted."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.escapes import width_of
from pytest_cepbench.evaluation.run_result import exit_code, nothing_compared
from pytest_cepbench.report.ci_reports import annotation_lines, markdown_summary
from pytest_cepbench.report.headline import gating, headline, worst_first
from pytest_cepbench.report.history import History, run_record, timelines_of
from pytest_cepbench.report.history_page import history_page
from pytest_cepbench.report.number_format import name_of, word_of
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.plots import change_plot, reach_of
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.tables import summary_table, text_of
from pytest_cepbench.report.text import explain, figures_first, promise_lines
from pytest_cepbench.report.totals import count_verdicts, run_alpha
from pytest_cepbench.report.writers import (
    SCHEMA,
    Document,
    absent_field,
    csv_table,
    json_document,
    properties_of,
)
from tests.report.pages import assert_self_contained, read_page
from tests.report.results import FACTS, RESULTS, origin, replace
from tests.report.test_ci_reports import OURS, ROOT, html_of, parse_command
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
    assert read_page(html).tags <= OURS
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

    commands = list(annotation_lines(hostile, (), ROOT, ROOT.parent))
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

    rows = list(csv.DictReader(io.StringIO(csv_table(results, {"run": "a"} | RUN), newline="")))
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


RUN = {"run_verdict": "failed", "step": 7, "model": "runs/1/step-7"}


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
