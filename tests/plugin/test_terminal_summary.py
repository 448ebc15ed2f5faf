"""The end of a run: headline first, as wide as the terminal, as brief as asked for."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.plugin.project import MODES, Project
from tests.plugin.scored_project import (
    ACCEPT,
    Ended,
    ScoredProject,
    junit_properties,
    model,
    scored_suite,
)
from tests.reference.shipped import assert_frozen_verdicts

SUITE = scored_suite(
    n=30,
    categories=("same", "unclear", "vague", "worse"),
    rest="""\
[metrics.gc]
[metrics.s]
[gate]
primary = ["same/gc", "unclear/gc", "vague/gc", "worse/gc"]
""",
)

CANDIDATE = model(drop="0,0.005,0.005,0.047", spread="0.004,0.03,0.03,0.01")

OWN_SNAPSHOT = "def test_own(snapshot):\n    assert 1 == snapshot\n"


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """The project with baselines that the tests leave as they are."""
    project = ScoredProject.make(tmp_path_factory.mktemp("summary"), SUITE)
    project.accept()
    return project


def _section(ended: Ended) -> list[str]:
    """The lines of the summary, without its title."""
    lines = ended.output.splitlines()
    begin = next(k for k, line in enumerate(lines) if " cepbench summary " in line)
    rest = lines[begin + 1 :]
    ends = (k for k, line in enumerate(rest) if line.startswith("=") or " report summary -" in line)
    end = next(ends, len(rest) - 1)  # with -q the last line has no rule
    return rest[:end]


@pytest.mark.parametrize("columns", [60, pytest.param(80, marks=pytest.mark.slow)])
def test_no_line_is_wider_than_the_terminal(scored: ScoredProject, columns: int) -> None:
    """Header, table, counts and sentences; the headline comes first. An address is not broken."""
    ended = scored.run(CANDIDATE, env={"COLUMNS": str(columns)})
    section = _section(ended)
    assert section[0].startswith("Do not ship: 1 of 4 gating cases regressed;")
    assert ended.output.count("cannot tell: ") == 1
    addresses = [line for line in section if "file://" in line]
    assert len(addresses) == 1
    lines = ended.output.splitlines()
    header = [line for line in lines if line.startswith(("cepbench: ", " " * 10))]
    assert header[0].startswith("cepbench: model under test, describer:")
    whole = [line for line in [*section, *header] if line not in addresses]
    assert max(map(len, whole)) <= columns, "\n".join(whole)
    assert "worse" not in next(line for line in section if line.startswith("verdict"))


def test_a_file_has_all_columns(scored: ScoredProject) -> None:
    """Tables in logs of a CI system are not cut to the 80 columns that pytest takes a file to have.

    Sentences are broken there, between words. An address is whole.
    """
    ended = scored.run(CANDIDATE, "-v", env={"COLUMNS": ""})
    section = _section(ended)
    heads = next(line for line in section if line.startswith("verdict"))
    columns = "verdict case now baseline change bounds p tolerance n"
    assert heads.split() == columns.split()
    below = section[section.index("4 gating cases: 1 held, 2 inconclusive, 1 regressed") :]
    assert max(len(line) for line in below if "file://" not in line) <= 80
    above = " ".join(line.strip() for line in section[: section.index(heads)])
    assert above == ended.report["headline"]


def test_quiet_runs_show_the_headline_what_fails_and_the_page(scored: ScoredProject) -> None:
    """Four lines with -q, of which one is the table's header; the headline alone with -qq.

    That is one line, whatever the width: who asks for one line reads it with a program.
    """
    ended = scored.run(CANDIDATE, "-q")
    headline, heads, failing, page = _section(ended)
    assert headline.startswith("Do not ship: 1 of 4 gating cases regressed; worst scored/worse ")
    assert heads.startswith("verdict ")
    assert failing.startswith("REGRESSED  scored worse GC@1 ")
    assert page == "report: .cepbench/report.html"
    ended = scored.run(CANDIDATE, "-qq", env={"COLUMNS": "80"})
    assert ended.output.count(ended.report["headline"]) == 1
    assert "cepbench summary" not in ended.output
    assert "report.html" not in ended.output.partition(ended.report["headline"])[2]


def test_one_line_of_a_failure_begins_with_its_numbers(
    scored: ScoredProject, tmp_path: Path
) -> None:
    """Also under CI, where pytest does not cut it, and in the message of the JUnit file."""
    junit = tmp_path / "junit.xml"
    ended = scored.run(CANDIDATE, "-rf", "-k", "worse", f"--junitxml={junit}", env={"CI": "true"})
    numbers = "-0.0467, p 0.00049, tolerance 0.0100, n = 30"
    ended.lines.fnmatch_lines(
        ["=* short test summary info *", "REGRESSED *", "=*"], consecutive=True
    )
    assert ended.output.splitlines()[-2].endswith(
        f"test_drift[worse-gc] - {numbers}: scored worse GC@1 regressed"
    )
    failure = ET.parse(junit).getroot().find(".//failure")
    assert failure is not None
    assert failure.attrib["message"] == f"{numbers}: scored worse GC@1 regressed"
    assert "samples that lost most" in (failure.text or "")


@pytest.mark.parametrize("mode", ["no-plugin", pytest.param("n2", marks=pytest.mark.slow)])
def test_undecided_cases_are_one_warning(scored: ScoredProject, mode: str) -> None:
    """However many there are, and whichever worker judged them."""
    ended = scored.run(*MODES[mode], CANDIDATE, "-k", "unclear or vague or same")
    assert ended.code == pytest.ExitCode.OK
    assert "snapshot report summary" not in ended.output
    assert ended.output.count("InconclusiveWarning: ") == 1
    ended.lines.fnmatch_lines(
        [
            "*InconclusiveWarning: 2 cases undecided: try --cep-inconclusive=more, *; scored *",
            "Undecided: 2 of 3 gating cases; 30 samples see drops from 0.*; * would see 0.*",
            "cannot tell: scored * GC@1: 30 samples see drops from 0.*; * would see 0.*",
            "cannot tell: scored * GC@1: 30 samples see drops from 0.*; * would see 0.*",
            "next: try --cep-inconclusive=more, *",
            "=* 1 warning, *",
        ]
    )
    needed = ended.cases["unclear-gc"]["needed"]
    assert needed > 30
    assert f"; {needed:,} would see" in ended.report["headline"]
    assert ended.cases["same-gc"]["needed"] is None


def test_a_mark_that_ignores_the_warning_is_obeyed(scored: ScoredProject, tmp_path: Path) -> None:
    """Also where `-W error` would raise it: the test passes, and the session ends as it should."""
    project = scored.copy(tmp_path / "project")
    mark = '@pytest.mark.filterwarnings("ignore::pytest_cepbench.InconclusiveWarning")'
    project.edit("test_scored.py", "def test_drift", f"import pytest\n\n{mark}\ndef test_drift")
    ended = project.run(CANDIDATE, "-k", "unclear", "-W", "error")
    assert ended.code == pytest.ExitCode.OK, ended.output + ended.errors
    assert ended.report["headline"].startswith("Undecided: ")


@pytest.mark.parametrize("mode", ["no-plugin", pytest.param("n2", marks=pytest.mark.slow)])
def test_syrupy_counts_a_users_own_snapshots_alone(
    scored: ScoredProject, tmp_path: Path, mode: str
) -> None:
    """A snapshot of one's own is reported as ever. Where it fails, the run does not ship, though
    all gating cases hold, and the headline says why.
    """
    project = scored.copy(tmp_path / "project")
    (project.path / "test_own.py").write_text(OWN_SNAPSHOT)
    junit = tmp_path / "j.xml"
    ended = project.run(*MODES[mode], CANDIDATE, "-k", "same or own", f"--junitxml={junit}")
    ended.lines.fnmatch_lines(["*snapshot report summary*", "1 snapshot failed."])
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    headline = (
        "Do not ship yet: 1 held of 1 gating case judged, but the run failed outside of the gate "
        "(exit code 1)"
    )
    assert ended.report["headline"] == headline
    assert junit_properties(junit)[0]["cepbench_headline"] == headline
    project.run(ACCEPT, "test_own.py")
    ended = project.run(*MODES[mode], CANDIDATE, "-k", "same or own")
    assert ended.code == pytest.ExitCode.OK, ended.output
    ended.lines.fnmatch_lines(["*snapshot report summary*", "1 snapshot passed."])


def test_an_accepting_run_says_what_was_accepted(scored: ScoredProject, tmp_path: Path) -> None:
    """The JUnit file, which is written before the baselines are, says only that they shall be."""
    project = scored.copy(tmp_path / "project")
    junit = tmp_path / "j.xml"
    ended = project.run(ACCEPT, CANDIDATE, f"--junitxml={junit}")
    assert ended.code == pytest.ExitCode.OK, ended.output
    assert ended.report["headline"] == (
        "Accepted: 10 measurements are baselines now, 4 of which had regressed"
    )
    assert junit_properties(junit)[0]["cepbench_headline"].startswith("To be accepted: 10 of 10 ")


# -- how many lines a run has on a terminal of 80 columns ------------------------------------------


ROOT = Path(__file__).parents[2]

FAILING, PASSING = 60, 25


@pytest.mark.slow
def test_the_instrument_fits_on_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-one of twenty-six gating cases of the shipped suites fail; then all hold."""
    for folder in (ROOT / "suites" / "instrument", *(ROOT / "baselines").glob("instrument*")):
        shutil.copytree(folder, tmp_path / folder.relative_to(ROOT))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    # A slow machine is told how far the run is, by a line now and then.
    still = "from pytest_cepbench.plugin.terminal import live\n\nlive.PAUSE = 3600\n"
    (tmp_path / "conftest.py").write_text(still)
    monkeypatch.delenv("CI", raising=False)
    instrument, terminal = ScoredProject(tmp_path), {"COLUMNS": "80"}
    ended = instrument.run("suites/instrument", "--model=shapes:?miss=0.1", env=terminal)
    failing = (ended.output + ended.errors).splitlines()
    assert len(failing) <= FAILING, "\n".join(failing)
    text = " ".join(" ".join(failing).split())
    assert "Do not ship: 21 of 26 gating cases regressed" in text
    assert "and 11 more (all with -v)" in text
    assert text.count("lost most: ") == 3
    assert "3 suites as a whole: 3 regressed" in text
    assert "; 675 would see 0.01 (+1 with -v)" in text
    assert " FAILURES " not in text
    assert "short test summary" not in text
    assert failing[-1].startswith("= 21 failed, ")
    assert failing[-2].strip().startswith("file://")
    ended = instrument.run("suites/instrument", "--model=shapes:", env=terminal)
    passing = (ended.output + ended.errors).splitlines()
    assert len(passing) <= PASSING, "\n".join(passing)
    assert "May ship: all 26 gating cases held" in passing
    assert_frozen_verdicts(ended.report, "instrument")


def test_one_cause_is_one_block(toy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many cases meet it."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line for line in toy.run_here().outlines if line]
    assert len(lines) <= 25, "\n".join(lines)
    cause = "10 cases have no baseline: run again with --snapshot-update"
    assert "\n".join(lines).count(cause) == 1


def test_other_failures_are_shown_as_pytest_shows_them(accepted: Project) -> None:
    """With their tracebacks and their line of the short summary; verdicts are in the table."""
    accepted.write("test_other.py", "def test_other():\n    assert 1 == 2\n")
    result = accepted.run_here("--model=shapes:?miss=0.3", "-k", "other or crowded")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*= FAILURES =*", "*_ test_other _*", "E       assert 1 == 2", "*cepbench summary*",
         "*short test summary info*", "FAILED test_other.py::test_other - assert 1 == 2"]
    )  # fmt: skip
    result.stdout.no_fnmatch_line("*test_drift?crowded-gc? -*")
    shown = accepted.run_here("--model=shapes:?miss=0.3", "-k", "crowded", "-v", "-rf")
    shown.stdout.fnmatch_lines(
        ["*= FAILURES =*", "regressed: toy, crowded, GC@2 (*", "*short test summary info*"]
    )
    short = accepted.run_here("--model=shapes:?miss=0.3", "-k", "crowded", "-v", "--tb=line")
    short.stdout.fnmatch_lines(["*: -0.*, tolerance 0.0100, n = 2: toy crowded GC@2 regressed"])
