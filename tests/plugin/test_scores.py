"""A suite whose judge scores single answers, from the command line to the reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import INI, TEST_MODULE, Project
from tests.suites.answers import HEAD, WORSE

SUITE = HEAD + (
    '[answer]\n[roles]\ninterleaver = "shapes:"\njudge = "shapes:"\n'
    '[metrics.correctness]\nkind = "criteria"\ncriterion = "correctness"\ntolerance = 0.05\n'
    '[metrics.overall_score]\nkind = "criteria"\n'
    '[metrics.judge_failures]\ngate = "threshold"\ntolerance = 0.0\n'
    '[gate]\nprimary = ["correctness", "judge_failures"]\n'
)

JUDGE = """\
from pytest_cepbench import CriterionScore

CRITERIA = (
    "correctness", "coherency", "consistency", "quality", "preference", "completeness", "richness"
)

WORDS = "<script>alert(1)</script>\\x1b[31m red \\u202e"


class Talker:
    fingerprint = "talker/1"

    def judge(self, battles, seeds):
        return ["A"] * len(battles)

    def score_answers(self, answers, seeds):
        return [self._score(answered) for answered in answers]

    def _score(self, answered):
        has_text = any(isinstance(piece, str) for piece in answered.answer)
        return dict.fromkeys(CRITERIA, CriterionScore(9 if has_text else 1, WORDS))


class Silent:
    fingerprint = "silent/1"

    def judge(self, battles, seeds):
        return ["A"] * len(battles)
"""


@pytest.fixture
def scored(project: Project) -> Project:
    """A project whose scores were accepted."""
    project.write("pytest.ini", INI)
    project.write("suite.toml", SUITE)
    project.write("test_arena.py", TEST_MODULE)
    project.write("judges.py", JUDGE)
    return project


@pytest.mark.slow
def test_a_worse_model_fails_by_its_scores(scored: Project) -> None:
    """The accepted one passes; both runs again ask nobody anything."""
    assert scored.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    result = scored.run_here("-vv", f"--model={WORSE}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "regressed: arena, overall, correctness score (*",
            "REGRESSED *overall correctness score *",
        ]
    )
    (overall,) = [c for c in scored.report()["cases"] if c["metric"] == "overall_score"]
    assert any(note.startswith("OpenING's overall, the mean of") for note in overall["notes"])
    again = scored.run_here(f"--model={WORSE}")
    again.stdout.fnmatch_lines(["*0 model loads, 0 model inputs *"])
    assert scored.run_here().ret == pytest.ExitCode.OK


def test_the_judge_s_words_are_shown_and_not_obeyed(scored: Project) -> None:
    """On the page as text without tags, in the terminal without control characters."""
    judge = "--judge=python:judges:Talker"
    assert scored.run_here(judge, "--snapshot-update").ret == pytest.ExitCode.OK
    result = scored.run_here(judge, "--model=shapes:?no_text=1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    page = (scored.path / ".cepbench" / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;[31m red" in page
    assert "<script>alert" not in page
    assert "\x1b[31m red" not in result.stdout.str()


def test_a_judge_that_cannot_score_is_one_line(scored: Project) -> None:
    """Before an answer is made, and no case passes."""
    result = scored.run_here("--judge=python:judges:Silent", "--snapshot-update")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["*metrics.correctness] needs scores of single answers*the judge 'python:judges:Silent'*"]
    )
    result.stdout.fnmatch_lines(["*0 model inputs*"])
    assert not list(Path(scored.baselines).rglob("*.toml"))
