"""Verdicts of the statistical gates from end to end, the same in every way to run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.dom import minidom

import pytest

from tests.plugin.project import MODES
from tests.plugin.scored_project import (
    Ended,
    ScoredProject,
    junit_properties,
    model,
    scored_suite,
)

SERVICES = Path(__file__).parents[1] / "report" / "services"

CATEGORIES = ("aside", "better", "same", "unclear", "worse")

SUITE = scored_suite(
    n=30,
    categories=CATEGORIES,
    rest="""\
[metrics.gc]
[metrics.failures]
gate = "threshold"
tolerance = 0.0
[gate]
primary = ["better/gc", "same/gc", "unclear/gc", "worse/gc", "failures"]
""",
)

CANDIDATE = model(drop="0.045,-0.05,0,0.005,0.047", spread="0.01,0.01,0.004,0.03,0.01")

FOUND = {
    "aside-gc": "regressed",
    "better-gc": "improved",
    "same-gc": "held",
    "unclear-gc": "inconclusive",
    "worse-gc": "regressed",
    "overall-gc": "inconclusive",
    "overall-failures": "held",
}

WORDS = {"aside-gc": "regressed", "overall-gc": "inconclusive"}
"""Of what cannot fail the run, in lower case; the others in upper case."""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """The project with baselines that the tests leave as they are."""
    project = ScoredProject.make(tmp_path_factory.mktemp("outcomes"), SUITE)
    project.accept()
    return project


@pytest.fixture(scope="module")
def plain(accepted: ScoredProject) -> tuple[Ended, Path]:
    """All verdicts in one plain run, with its JUnit file."""
    junit = accepted.path / "plain.xml"
    return accepted.run(CANDIDATE, f"--junitxml={junit}"), junit


@pytest.fixture(scope="module")
def whole(accepted: ScoredProject) -> Ended:
    """The same with all that a terminal can show."""
    return accepted.run(CANDIDATE, "-vv")


def test_every_verdict_has_its_letter_count_and_table(plain: tuple[Ended, Path]) -> None:
    """The letters i + . ? F in the order of cases, counted apart; one regression fails the run."""
    ended, _ = plain
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert ended.verdicts == FOUND
    ended.lines.fnmatch_lines(
        [
            "test_scored.py i+.?Fi. *",
            "Do not ship: 1 of 5 gating cases regressed; worst scored/worse GC@1 -*",
            "REGRESSED  scored worse GC@1 *",
            "lost most: worse/*: 0.800 -> 0.* (scored worse GC@1)",
            "where: scored worse GC@1 lost 100 % by the describer at generation 1",
            "cannot tell: scored unclear GC@1: 30 samples see drops from 0.*; * would see 0.0*",
            ("5 gating cases: 2 held, 1 improved, 1 inconclusive, 1 regressed; 2 informational"),
            "5 % false failures at most per run of checkpoints * (+1 with -v)",
            "1 case improved: --snapshot-update raises the baseline, *",
            "next: look at the samples in the HTML report; *",
            "worst sample: file://*",
            "=* 1 failed, 3 passed, 2 informational, 1 inconclusive in *",
        ]
    )
    assert "Traceback" not in ended.output
    assert "= FAILURES =" not in ended.output
    assert "short test summary" not in ended.output


def test_the_whole_table_is_shown_where_it_is_asked_for(whole: Ended) -> None:
    """With the promises, and the settings of each case."""
    whole.lines.fnmatch_lines(
        [
            "Do not ship: 1 of 5 gating cases regressed; worst scored/worse GC@1 -*",
            "regressed *aside GC@1 *",
            "IMPROVED *better GC@1 *",
            "HELD *same GC@1 *",
            "INCONCLUSIVE *unclear GC@1 *",
            "REGRESSED *worse GC@1 *",
            "inconclusive *overall GC@1 *",
            "5 gating cases: 2 held, 1 improved, 1 inconclusive, 1 regressed",
            "2 informational, which cannot fail the run: 1 inconclusive, 1 regressed",
            (
                "5 % false failures at most per run of checkpoints exchangeable with the baseline, "
                "over 4 cases"
            ),
            "1 case judged by threshold alone: no promise on error",
        ]
    )


def test_the_warning_names_only_what_could_have_failed(accepted: ScoredProject) -> None:
    """A case that cannot fail the run, inconclusive too, has no warning; nor has a failing run."""
    ended = accepted.run(CANDIDATE, "--deselect=test_scored.py::test_drift[worse-gc]")
    assert ended.cases["overall-gc"]["verdict"] == "inconclusive"
    ended.lines.fnmatch_lines(
        [
            "*InconclusiveWarning: 1 case undecided",
            "  -*, p 0.*, tolerance 0.0100, n = 30: scored unclear*",
            "  try --cep-inconclusive=more, *",
        ]
    )
    assert ended.output.count("InconclusiveWarning: ") == 1


def test_the_failure_says_how_it_was_judged(whole: Ended) -> None:
    """Baseline, now, difference with bounds, p, tolerance, alpha's share, n, what is visible."""
    ended = whole
    case = ended.cases["worse-gc"]
    assert case["low"] < case["difference"] < case["high"] < 0
    assert case["difference"] < -case["tolerance"]
    assert case["alpha"] == pytest.approx(0.05 / 4)
    bounds = f"[[]{case['low']:+.4f}, {case['high']:+.4f}], 98.75 % one-sided bounds, Hall"
    assert case["p"] < 0.0125
    ended.lines.fnmatch_lines(
        [
            "regressed: scored, worse, GC@1 (the measured drop exceeds the tolerance, and is",
            "  not noise)",
            f"  difference *{case['difference']:+.4f}   {bounds}",
            f"  p *{case['p']:.2g}   sign flips; 0.0125 or less tells a drop from noise",
            "  tolerance       -0.0100   regression gate",
            "  alpha            0.0125   of each test and bound",
            "  n                    30",
            f"  visible drop *{case['visible']:.4f}   the smallest that fails in 80 % of runs",
            "  samples that lost most *",
            "  next: look at the samples in the HTML report; *",
        ]
    )


def test_junit_carries_verdicts_and_numbers(plain: tuple[Ended, Path]) -> None:
    """Properties of every test case agree with the JSON; the whole run has its verdict."""
    ended, junit = plain
    run, cases = junit_properties(junit)
    assert run["cepbench_verdict"] == ended.report["verdict"] == "failed"
    assert run["cepbench_headline"] == ended.report["headline"]
    assert ended.report["headline"].startswith("Do not ship: 1 of 5 gating cases regressed; ")
    assert len(cases) == len(FOUND)
    for name, case in ended.cases.items():
        properties = cases[f"test_drift[{name}]"]
        assert properties["cepbench_case"] == f"scored/{case['part']}/{case['metric']}"
        assert properties["cepbench_verdict"] == case["verdict"]
        assert properties["cepbench_primary"] == str(case["primary"]).lower()
        for field in ("value", "baseline", "difference", "low", "high", "alpha", "tolerance", "n"):
            if case[field] is None:
                assert f"cepbench_{field}" not in properties
            else:
                assert float(properties[f"cepbench_{field}"]) == case[field]


def test_junit_is_what_its_file_shows(plain: tuple[Ended, Path]) -> None:
    """As viewers of CI services read it: properties of each case, one message of one that fails."""
    text = minidom.parse(str(plain[1])).toprettyxml(indent=" ")
    shown = re.sub(r' (time|timestamp|hostname)="[^"]*"', "", text)
    assert shown == (SERVICES / "junit.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", MODES)
def test_every_way_to_run_finds_the_same(
    accepted: ScoredProject, plain: tuple[Ended, Path], mode: str, tmp_path: Path
) -> None:
    """Exit code, words with -v, JSON but for the effort, and JUnit do not depend on the mode."""
    first, junit = plain
    ended = accepted.run(*MODES[mode], "-v", f"--junitxml={tmp_path / 'j.xml'}", CANDIDATE)
    assert ended.code == first.code
    assert ended.numbers == first.numbers
    same = ("schema", "verdict", "counts", "alpha", "problems")
    assert {name: ended.report[name] for name in same} == {n: first.report[n] for n in same}
    assert junit_properties(tmp_path / "j.xml") == junit_properties(junit)
    for name, verdict in FOUND.items():
        lines = [line for line in ended.output.splitlines() if f"[{name}]" in line and "%]" in line]
        assert len(lines) == 1
        assert WORDS.get(name, verdict.upper()) in lines[0].split()


@pytest.mark.slow
def test_letters_on_two_workers(accepted: ScoredProject) -> None:
    """The same letters in whatever order the workers report."""
    ended = accepted.run("-n", "2", "-W", "default", CANDIDATE)
    (line,) = [line for line in ended.output.splitlines() if line.endswith("[100%]")]
    assert sorted(line.split()[0]) == sorted("i+.?Fi.")


def test_an_inconclusive_case_passes_though_warnings_are_errors(accepted: ScoredProject) -> None:
    """`filterwarnings = error` of the ini file means Python's warnings: the run is green."""
    assert "filterwarnings = error" in (accepted.path / "pytest.ini").read_text()
    ended = accepted.run(CANDIDATE, "-k", "unclear")
    assert ended.code == pytest.ExitCode.OK
    assert ended.report["verdict"] == "undecided"
    assert not ended.cases["unclear-gc"]["strict"]
    ended.lines.fnmatch_lines(
        ["*warnings summary*", "*InconclusiveWarning: *", "1 gating case: 1 inconclusive"]
    )


@pytest.mark.parametrize("mode", ["no-plugin", pytest.param("n2", marks=pytest.mark.slow)])
def test_warnings_as_errors_on_the_command_line_fail_it(accepted: ScoredProject, mode: str) -> None:
    """`-W error` is meant for it too: a failure with the numbers and without a traceback."""
    ended = accepted.run(*MODES[mode], "-W", "error", CANDIDATE, "-k", "unclear", "-vv")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    ended.lines.fnmatch_lines(["inconclusive: scored, unclear, GC@1 (the samples do not tell *"])
    assert ended.report["verdict"] == "failed"
    assert "Traceback" not in ended.output
    assert "test_scored.py:2:" not in ended.output


@pytest.mark.parametrize(
    "arguments",
    [["--cep-inconclusive=fail"], ["--cep-gate=noninferiority"]],
    ids=["option", "gate"],
)
def test_an_inconclusive_case_fails_where_that_is_asked_for(
    accepted: ScoredProject, arguments: list[str]
) -> None:
    """By --cep-inconclusive=fail, or a gate that passes only what it knows; held still passes."""
    ended = accepted.run(*arguments, CANDIDATE, "-k", "unclear or same", "-v")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert ended.verdicts == {"same-gc": "held", "unclear-gc": "inconclusive"}
    assert ended.cases["unclear-gc"]["strict"]
    assert ended.report["verdict"] == "failed"
    ended.lines.fnmatch_lines(
        [
            "*test_drift?unclear-gc? INCONCLUSIVE *",
            "inconclusive: scored unclear GC@1",
            "  next: gate more samples or seeds, *",
            "=* 1 failed, 1 passed, *",
        ]
    )
    assert "InconclusiveWarning" not in ended.output


def test_informational_cases_alone_are_no_pass(accepted: ScoredProject) -> None:
    """Where nothing could have failed, nothing is known: exit code 5, and the summary says so."""
    ended = accepted.run(CANDIDATE, "-k", "aside", "-v")
    assert ended.code == pytest.ExitCode.NO_TESTS_COLLECTED
    ended.lines.fnmatch_lines(
        ["*test_drift?aside-gc? regressed *", "no case was judged: nothing is known of the model"]
    )
    assert ended.report["counts"] == {"informational": 1}
    assert ended.report["alpha"] is None


@pytest.mark.slow
def test_an_improvement_alone_is_green_and_can_be_accepted(
    accepted: ScoredProject, tmp_path: Path
) -> None:
    """Improved passes with exit code 0; --snapshot-update then raises the baseline, which holds."""
    project = accepted.copy(tmp_path / "raised")
    ended = project.run(CANDIDATE, "-k", "better", "-v")
    assert ended.code == pytest.ExitCode.OK
    ended.lines.fnmatch_lines(["*test_drift?better-gc? IMPROVED *"])
    raised = project.accept(CANDIDATE, "-k", "better")
    raised.lines.fnmatch_lines(["changed scored/better/gc: 0.8000 -> 0.85* (+0.05*), n = 30*"])
    assert project.run(CANDIDATE, "-k", "better").verdicts == {"better-gc": "held"}
