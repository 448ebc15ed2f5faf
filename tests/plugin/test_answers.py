"""Suites of interleaved answers, from the command line to the reports; judges of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugin.project import Project
from tests.suites.answers import ANSWERS, HEAD, WORSE

REGRESSED = f"--model={WORSE}"

PRIMARY = '[gate]\nprimary = ["overall/win_rate", "failures", "judge_failures"]\n'

SUITE = ANSWERS.replace("samples_per_category = 2", "samples_per_category = 1") + PRIMARY


def _case(project: Project) -> dict[str, Any]:
    cases: list[dict[str, Any]] = project.report()["cases"]
    (case,) = [own for own in cases if (own["part"], own["metric"]) == ("overall", "win_rate")]
    return case


def test_a_worse_model_fails_and_the_accepted_one_passes_again(project: Project) -> None:
    """By its battles, as the terminal and the report say; a second run asks nobody anything."""
    project.suite(SUITE)
    assert project.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    result = project.run_here("-vv", REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "regressed: arena, overall, win rate (*",
            "*verdicts, 50% of them for the answer that was shown first*",
            "REGRESSED *overall win rate *",
        ]
    )
    case = _case(project)
    assert (case["verdict"], case["baseline"], case["n"]) == ("regressed", 0.5, 10)
    again = project.run_here(REGRESSED)
    again.stdout.fnmatch_lines(["*0 model loads, 0 model inputs *"])
    assert _case(project)["value"] == case["value"]
    assert project.run_here().ret == pytest.ExitCode.OK
    assert _case(project)["verdict"] == "held"


SCORES = HEAD + (
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


def test_the_judge_s_words_are_shown_and_not_obeyed(project: Project) -> None:
    """On the page as text without tags, in the terminal without control characters.

    Where a judge cannot score, no answer is made and none accepted, in one line.
    """
    project.suite(SCORES)
    project.write("judges.py", JUDGE)
    result = project.run_here("--judge=python:judges:Silent", "--snapshot-update")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["*metrics.correctness] needs scores of single answers*the judge 'python:judges:Silent'*"]
    )
    result.stdout.fnmatch_lines(["*0 model inputs*"])
    assert not list(Path(project.baselines).rglob("*.toml"))

    judge = "--judge=python:judges:Talker"
    assert project.run_here(judge, "--snapshot-update").ret == pytest.ExitCode.OK
    result = project.run_here(judge, "--model=shapes:?no_text=1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    page = (project.path / ".cepbench" / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;[31m red" in page
    assert "<script>alert" not in page
    assert "\x1b[31m red" not in result.stdout.str()
