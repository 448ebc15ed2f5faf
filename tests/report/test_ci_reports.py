"""What GitHub, GitLab and Buildkite show of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.ci_reports import (
    STEP_SUMMARY_BYTES,
    annotation_lines,
    append_step_summary,
    buildkite_command,
    code_quality,
    markdown_summary,
    shorten,
)
from pytest_cepbench.report.headline import gating, worst_first
from pytest_cepbench.report.number_format import name_of
from pytest_cepbench.report.writers import RunFacts
from tests.report.results import ANSWERED, FULL, REGRESSED, RESULTS, replace
from tests.test_escapes import hides_nothing

ROOT = Path("/checkout/gates")


def parse_command(line: str) -> tuple[dict[str, str], str]:
    """Properties and message of a command, unescaped as `ActionCommand` of the runner does it."""
    command = re.fullmatch(r"::(?:error|warning) ([^:]*)::(.*)", line)
    assert command is not None, line

    def unescape(text: str, escapes: dict[str, str]) -> str:
        for escaped, char in escapes.items():
            text = text.replace(escaped, char)
        return text

    of_property = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
    of_data = {"%0D": "\r", "%0A": "\n", "%25": "%"}
    pairs = (pair.partition("=") for pair in command[1].split(","))
    properties = {name: unescape(value, of_property) for name, _, value in pairs}
    return properties, unescape(command[2], of_data)


def _annotations(results: list[CaseResult], problems: tuple[str, ...] = ()) -> list[str]:
    return list(annotation_lines(results, problems, ROOT, ROOT.parent))


def test_the_three_worst_cases_are_annotated() -> None:
    """Those that lost most tolerances first, errors behind them; the last one says what is left."""
    error = replace(FULL, part="broken", verdict="error", difference=None, reasons=["no disk"])
    losses = [
        replace(FULL, part=f"part{loss}", difference=-loss / 10, tolerance=0.01 * loss**2)
        for loss in (1, 2, 4)
    ]
    informational = replace(FULL, part="informational", primary=False)
    read = [*map(parse_command, _annotations([error, informational, *reversed(losses)]))]

    assert [properties["title"] for properties, _ in read] == [
        f"cepbench: toy part{loss} GC@2 regressed" for loss in (1, 2, 4)
    ]
    assert [properties["file"] for properties, _ in read] == ["gates/test_x.py"] * 3
    assert read[0][1].startswith("toy part1 GC@2 regressed: difference -0.1000, p 0.00042")
    assert read[2][1].endswith("(1 case more in the report)")


def test_an_annotation_stands_at_the_metric_of_the_suite(tmp_path: Path) -> None:
    """In the file that has the suite's name, of several beside the test module."""
    (tmp_path / "other.toml").write_text('name = "other"\n[metrics.gc]\n')
    (tmp_path / "suite.toml").write_text('name="toy"\n\n[metrics.s]\n[metrics.gc]\n')
    (line,) = annotation_lines([FULL], (), tmp_path, tmp_path.parent)
    assert line.startswith(f"::error file={tmp_path.name}/suite.toml,line=4,title=cepbench%3A toy ")
    (line,) = annotation_lines([replace(FULL, metric="mcd")], (), tmp_path, tmp_path)
    assert line.startswith("::error file=suite.toml,line=1,title=")


def test_a_run_that_holds_has_no_annotation() -> None:
    """Nor has one with cases that cannot fail it."""
    held = replace(FULL, verdict="held")
    assert _annotations([held, replace(FULL, primary=False), replace(FULL, accepted=True)]) == []


def test_undecided_cases_are_a_warning() -> None:
    """One for all that pass; those that fail are errors, and informational ones say nothing."""
    cases = [replace(FULL, part=f"part{n}", verdict="inconclusive") for n in range(5)]
    (line,) = _annotations([*cases, replace(cases[0], primary=False)])
    assert line.startswith("::warning title=cepbench%3A undecided::5 cases undecided: ")
    assert line.endswith("; first toy part0 GC@2, toy part1 GC@2, toy part2 GC@2")
    (line,) = _annotations([replace(cases[0], strict=True)])
    assert line.startswith("::error ")


def test_an_incomplete_run_says_why() -> None:
    """Also where it judged nothing."""
    ((properties, message),) = map(parse_command, _annotations([], ("2 tests:\n100 %", "b")))
    assert properties == {"title": "cepbench: the run is incomplete"}
    assert message == "2 tests: 100 %, and 1 more"


@given(st.lists(RESULTS, max_size=5), st.text(max_size=20))
def test_no_text_ends_a_command_or_begins_another(results: list[CaseResult], text: str) -> None:
    """Whatever categories are called, each line is one error whose properties are ours."""
    hostile = [
        replace(result, part=f"{text},title=x::%0A\r\n::error::", nodeid=f"a,{text}::b")
        for result in results
    ]
    failing = [result for result in hostile if not result.passes]
    lines = _annotations(hostile)
    open_cases = any(case.verdict == "inconclusive" and case.passes for case in gating(hostile))
    assert len(lines) == min(3, len(failing)) + open_cases
    if open_cases:
        assert parse_command(lines.pop())[0] == {"title": "cepbench: undecided"}
    for line, result in zip(lines, worst_first(hostile), strict=False):
        properties, message = parse_command(line)
        assert "\n" not in line
        assert "\r" not in line
        assert set(properties) == {"file", "title"}
        assert properties["title"] == f"cepbench: {name_of(result)} {result.word.lower()}"
        assert message.startswith(result.suite)


def test_a_test_outside_of_the_checkout_keeps_its_path() -> None:
    """GitHub shows such an annotation at the job."""
    (line,) = annotation_lines([REGRESSED], [], Path("/elsewhere"), Path("/checkout"))
    assert parse_command(line)[0]["file"] == "test_x.py"


def test_summaries_of_a_step_are_appended(tmp_path: Path) -> None:
    """What is there stays, and a heading begins on a line of its own."""
    path = tmp_path / "summary"
    path.write_text("| a table |")
    for text in ("## one\n", "## two\n"):
        append_step_summary(path, text)
    assert path.read_text() == "| a table |\n## one\n\n## two\n"


def test_a_summary_is_cut_to_the_limit_of_its_step(tmp_path: Path) -> None:
    """GitHub would drop a larger one whole; whole rows stay, folded parts are closed."""
    path = tmp_path / "summary"
    part = "\N{SNOWMAN}" * 30
    held = replace(FULL, verdict="held", part=part, warnings=[], floor=None)
    text = markdown_summary(RunFacts("passed", "1", [], []), [held] * 5000)
    assert len(text.encode()) > STEP_SUMMARY_BYTES

    path.write_text("x" * 500_000)
    append_step_summary(path, text)
    written = path.read_text(encoding="utf-8")
    assert STEP_SUMMARY_BYTES - 200 < path.stat().st_size <= STEP_SUMMARY_BYTES
    assert written.count("<details>") == written.count("</details>") == 2
    assert written.endswith("\n</details>\n\nThe rest is left out here: see the report.\n")
    rows = set(re.findall(r"^\| HELD .*", written, re.MULTILINE))
    assert [row.count(" |") for row in rows] == [9]

    append_step_summary(path, "## a step that writes another one\n" * 100)
    assert path.stat().st_size <= STEP_SUMMARY_BYTES


@given(st.text(max_size=300), st.integers(-10, 400))
def test_shortened_text_fits(text: str, most: int) -> None:
    """In any language, in whole lines; a text that fits is not changed."""
    shortened = shorten(text, most)
    assert len(shortened.encode("utf-8", "replace")) <= max(most, 0)
    if len(text.encode("utf-8", "replace")) <= most:
        assert shortened == text


def test_a_summary_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    """Its caller says so in a line."""
    with pytest.raises(OSError, match="directory"):
        append_step_summary(tmp_path, "x")


def _issues(results: list[CaseResult], *problems: str) -> list[dict[str, Any]]:
    issues: list[dict[str, Any]] = json.loads(code_quality(results, problems, ROOT, ROOT.parent))
    return issues


def test_an_issue_of_a_regressed_case() -> None:
    """In full, as GitLab documents it."""
    (issue,) = _issues([FULL])
    assert issue == {
        "description": "toy color GC@2 regressed: difference -0.2500, "
        "p 0.00042, tolerance 0.0100, n = 50",
        "check_name": "cepbench: regressed",
        "fingerprint": issue["fingerprint"],
        "severity": "critical",
        "location": {"path": "gates/test_x.py", "lines": {"begin": 1}},
    }


def test_severity_of_each_kind_of_case() -> None:
    """What fails the run is critical or major; what holds is no issue."""
    severities = {
        "held": None, "improved": None, "inconclusive": "minor", "regressed": "critical",
        "error": "major", "incomparable": "major", "no-baseline": "major",
    }  # fmt: skip
    for verdict, severity in severities.items():
        issues = _issues([replace(FULL, verdict=verdict)])
        assert [issue["severity"] for issue in issues] == ([severity] if severity else [])
    (informational,) = _issues([replace(FULL, primary=False)])
    assert informational["severity"] == "info"
    assert _issues([replace(FULL, verdict="no-baseline", accepted=True)]) == []
    (refused,) = _issues([replace(FULL, verdict="held", refused="close to chance")])
    assert refused["severity"] == "major"


def test_an_incomplete_run_is_a_blocker() -> None:
    """Although no case of it may have failed."""
    (issue,) = _issues([], "2 tests did not report")
    assert issue["severity"] == "blocker"
    assert issue["description"] == "the run is incomplete: 2 tests did not report"


def test_an_issue_is_the_same_one_in_the_next_run() -> None:
    """Other numbers leave the fingerprint; another case or verdict has another."""
    again = replace(FULL, value=0.25, difference=-0.5, nodeid="moved.py::test_x")
    fingerprints = [
        issue["fingerprint"]
        for case in (FULL, again, replace(FULL, part="shape"), replace(FULL, verdict="error"))
        for issue in _issues([case])
    ]
    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 3


@given(st.lists(RESULTS, max_size=4))
def test_every_issue_has_the_fields_that_are_read(results: list[CaseResult]) -> None:
    """Whatever it is about."""
    assert hides_nothing(code_quality(results, (), ROOT, ROOT), "\n")
    for issue in _issues(results):
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in {"info", "minor", "major", "critical", "blocker"}


SERVICES = Path(__file__).with_name("services")

CASES = [
    FULL,
    replace(FULL, verdict="held", part="overall", difference=0.0, p=0.5, low=-0.005, high=0.005),
    replace(FULL, verdict="inconclusive", part="shape", difference=-0.01, needed=420),
    replace(REGRESSED, verdict="no-baseline", baseline=None, difference=None),
    replace(REGRESSED, verdict="error", part="size", difference=None, reasons=["out of memory"]),
    ANSWERED,
]

FACTS = RunFacts(
    "failed", "1.2.3", ["model under test: <b>x</b>"], ["a worker <i>died</i>"],
    headline="Do not ship: 2 of 6 gating cases regressed",
)  # fmt: skip


def _written(name: str) -> str:
    problems = list(FACTS.problems)
    if name == "github-annotations.txt":
        return "\n".join(annotation_lines(CASES, problems, ROOT, ROOT.parent)) + "\n"
    if name == "gitlab-codequality.json":
        return code_quality(CASES, problems, ROOT, ROOT.parent)
    if name == "buildkite-command.txt":
        return " ".join(buildkite_command("failed")) + "\n"
    return markdown_summary(FACTS, CASES)


WRITTEN = sorted(path for path in SERVICES.iterdir() if path.suffix != ".xml")
"""But for JUnit, which pytest writes: tests/plugin/test_outcomes.py compares it."""


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_a_service_is_given_what_its_file_shows(path: Path) -> None:
    """So that a change of any part of it is seen in review."""
    assert _written(path.name) == path.read_text(encoding="utf-8")


def test_a_summary_fits_on_a_screen() -> None:
    """What is not folded away, of a run of a hundred failing cases."""
    many = [replace(FULL, part=f"part{n}", difference=-n / 1000) for n in range(100)]
    text = markdown_summary(FACTS, many)
    shown = [
        part.partition("</details>")[2] if n else part
        for n, part in enumerate(text.split("<details>"))
    ]
    assert len([line for line in "".join(shown).splitlines() if line.strip()]) <= 45
