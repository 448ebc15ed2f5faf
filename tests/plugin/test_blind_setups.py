"""Set-ups that cannot see, in real runs: refused, named in every report, never held in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import SHAPES, Project, contents
from tests.plugin.scored_project import ACCEPT, ScoredProject, model, scored_suite
from tests.suites.answers import HEAD, WORSE

TWO = scored_suite(n=30, categories=("one", "two"))
"""Scores are set by hand; chance gives about 0 in each category."""

INSENSITIVE = "--cep-accept-insensitive"

ENCODERS = """\
import numpy as np

class Blind:
    fingerprint = "blind/1"
    def encode_images(self, images):
        return np.ones((len(images), 4))
    def encode_texts(self, texts):
        return np.ones((len(texts), 4))

class OneAnswer:
    fingerprint, seeded = "one answer/1", False
    def describe(self, images, prompt, seeds):
        return ["a large red circle"] * len(images)
"""


def test_a_category_at_chance_is_refused_and_with_it_the_run(tmp_path: Path) -> None:
    """All or nothing: the good category is not accepted either; each is named, with the remedy."""
    scored = ScoredProject.make(tmp_path / "scored", TWO)
    ended = scored.run("-vv", ACCEPT, model(drop="0,0.77"))
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert not scored.baselines.exists()
    assert {name: bool(case["refused"]) for name, case in ended.cases.items()} == {
        "one-gc": False, "two-gc": True, "overall-gc": False,
    }  # fmt: skip
    assert not any(case["accepted"] for case in ended.cases.values())
    ended.lines.fnmatch_lines([
        "REFUSED * two GC@1 *",
        (
            "refused: scored two GC@1: 0.03 of a range from 0 (chance) to 1: "
            "this set-up can see a drop *"
        ),
        "refused: *; --cep-accept-insensitive accepts it all the same",
        "3 gating cases: 1 refused, 2 no-baseline",
        "no baseline was changed: *",
    ])  # fmt: skip
    assert ended.report["verdict"] == "failed"
    assert ended.report["counts"] == {"refused": 1, "no-baseline": 2}


@pytest.mark.parametrize(
    "gate",
    [
        "regression",
        *(pytest.param(g, marks=pytest.mark.slow) for g in ("noninferiority", "threshold")),
    ],
)
def test_nothing_holds_by_a_baseline_at_chance(tmp_path: Path, gate: str) -> None:
    """A checkpoint that is no better is not held: nothing could have been seen of it."""
    scored = ScoredProject.make(tmp_path / "scored", TWO)
    scored.accept(INSENSITIVE, model(drop="0,0.7905"))
    ended = scored.run(model(drop="0,0.7905", spread=0.003), f"--cep-gate={gate}")
    case = ended.cases["two-gc"]
    assert (case["verdict"], ended.cases["one-gc"]["verdict"]) == ("inconclusive", "held")
    (reason,) = case["reasons"]
    assert reason == (
        "the baseline of 0.0095 can lose 0.0095 down to what chance gives, and 0.01 is tolerated: "
        "a regression could not be seen"
    )
    ended.lines.fnmatch_lines(
        ["warning: scored two GC@1: the baseline is close to what chance gives: *"]
    )
    for suffix in (".md", ".html"):
        page = (scored.path / ".cepbench" / "report").with_suffix(suffix).read_text()
        assert "the baseline is close to what chance gives" in page
    failing = scored.run(
        model(drop="0,0.7905", spread=0.003), f"--cep-gate={gate}", "--cep-inconclusive=fail"
    )
    assert failing.code == pytest.ExitCode.TESTS_FAILED


def test_models_of_one_answer_are_said_warm_or_cold(project: Project) -> None:
    """An encoder of one vector would give each checkpoint a score of 1: nothing is accepted by it.

    One answer of a describer is said in the terminal, the JSON, the page and the summary.
    """
    project.suite(SHAPES.replace("samples_per_category = 2", "samples_per_category = 4"))
    project.write("sight.py", ENCODERS)
    some = ("-k", "color or shape")
    warning = "all 4 descriptions are the same, of images that differ: 'a large red circle'"
    for _ in range(2):
        blind = project.run_here(ACCEPT, "--encoder=python:sight:Blind", *some)
        assert blind.ret == pytest.ExitCode.TESTS_FAILED
        assert not project.baselines.exists() or not contents(project.baselines)
        assert project.verdicts() == {"color-gc": "error", "shape-gc": "error"}
        blind.stdout.fnmatch_lines(
            ["*python:sight:Blind gives one vector for * images that differ*"]
        )
        result = project.run_here("--model=python:sight:OneAnswer", *some)
        result.stdout.fnmatch_lines([f"warning: toy color GC@2 and * more: {warning}"])
        (case,) = [case for case in project.report()["cases"] if case["part"] == "color"]
        assert warning in case["warnings"]
        for kind in ("html", "md"):
            text = (project.path / ".cepbench" / f"report.{kind}").read_text()
            assert "all 4 descriptions are the same" in text


DULL = f"""\
{HEAD}
[answer]
[roles]
interleaver = "shapes:"
judge = "python:tests.suites.answers:DullJudge?way=ties"
[metrics.win_rate]
tolerance = 0.05
parts = "overall"
[gate]
primary = ["overall/win_rate"]
pooled = true
"""


def test_a_judge_that_sees_nothing_is_said_in_the_first_line(project: Project) -> None:
    """A much worse model is undecided by its ties, under `-q` too, and fails noninferiority.

    So is the suite as a whole, whose reason names the case.
    """
    project.suite(DULL)
    project.run_here(ACCEPT)
    result = project.run_here(f"--model={WORSE}", "-q")
    assert result.ret == pytest.ExitCode.OK
    assert set(project.verdicts().values()) == {"inconclusive"}
    result.stdout.fnmatch_lines([
        "Undecided: 1 of 1 gating case; arena/overall win rate: the judge cannot see a*",
    ])  # fmt: skip
    failing = project.run_here(f"--model={WORSE}", "--cep-gate=noninferiority", "-vv")
    assert failing.ret == pytest.ExitCode.TESTS_FAILED
    failing.stdout.fnmatch_lines([
        "inconclusive: arena, overall, win rate (the judge cannot see a drop: 15 of 15*",
        "*Undecided, which fails this run: 1 of 1 gating case; arena/overall win rate: the *",
        "next: name a judge, or models, that see it*",
    ])  # fmt: skip


MARKED = "import pytest\n\n@pytest.mark.cep(tolerance=1e9)\ndef test_drift"

ANCHORED = "[metrics.gc]\n[cases.'color/gc']\nanchor_tolerance = 0.8\n"

SOURCES: dict[str, tuple[list[str], dict[str, dict[str, str]], str]] = {
    "option": (["--cep-tolerance=2"], {}, "tolerance = 2 from --cep-tolerance: "),
    "marker": ([], {"test_toy.py": {"def test_drift": MARKED}}, "from @pytest.mark.cep: "),
    "gate": (
        [], {"suite.toml": {"[gate]\n": "[gate]\ntolerance = 3.0\n"}}, "= 3 from [gate]: ",
    ),
    "accepted": (["--cep-tolerance=0.8"], {}, "was accepted at 1 and can lose 0."),
    "since the anchor": (
        [], {"suite.toml": {"[metrics.gc]\n": ANCHORED}},
        "anchor_tolerance = 0.8 from [cases.'color/gc']: toy/color",
    ),
    "shares": (
        [], {"suite.toml": {"tolerance = 0.0": "tolerance = 1.0"}}, "spans 1, so no drop",
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_a_tolerance_that_nothing_exceeds_is_refused(accepted: Project, source: str) -> None:
    """One line that names who said so, before anything is measured."""
    arguments, changes, message = SOURCES[source]
    for name, edits in changes.items():
        for old, new in edits.items():
            accepted.edit(name, old, new)
    result = accepted.run_here(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert message in line
    assert "so no drop exceeds it" in line
    assert "Traceback" not in "\n".join(result.errlines + result.outlines)


@pytest.mark.slow
def test_workers_refuse_it_case_by_case(accepted: Project) -> None:
    """No worker can end a run with a usage error: each case is an error that says the same."""
    result = accepted.run("-n", "2", "-k", "color", "--cep-tolerance=1e9")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert set(accepted.verdicts().values()) == {"error"}
    result.stdout.fnmatch_lines(
        ["*tolerance = 1e+09 from --cep-tolerance: *so no drop exceeds it*"]
    )
