"""The benchmark of the arena in small: its figures, its promises, and its page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.arena_figures.rates import QUICK_RATES, RULES, rates
from benchmarks.arena_figures.scores import METHODS, faults_seen
from benchmarks.arena_figures.soft_worlds import SCORES, SoftWorld
from benchmarks.arena_figures.worlds import DESIGNS, Design, JudgeWorld
from pytest_cepbench.chains.answers.answer_plan import ScoreName

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("accuracy", "effect", "ties"), [(0.62, 0.9, 0.6), (0.95, 0.0, 0.0)])
def test_a_judge_shows_the_part_of_a_drop_that_it_sees(
    design: Design, accuracy: float, effect: float, ties: float
) -> None:
    """The mean score is the one that follows from the judge, and one half of equal models."""
    world = JudgeWorld(accuracy, effect, ties, design)
    generator = np.random.default_rng(0)
    dropped = world.draw(generator, (1, 400_000), 0.3, equal=False).mean()
    equal = world.draw(generator, (1, 400_000), 0.3, equal=True).mean()
    assert dropped - 0.5 == pytest.approx(-0.2 * world.sees, abs=0.004)
    assert equal == pytest.approx(0.5, abs=0.004)


def test_rates_of_every_rule() -> None:
    """Each rule has its errors, whose promises are kept, and samples; betting needs the fewest."""
    figures = list(rates(JudgeWorld(0.82, 0.45, 0.3, "both"), QUICK_RATES))
    promised = [figure for figure in figures if figure.promise is not None]
    assert {figure.rule for figure in promised} == set(RULES)
    assert not [figure for figure in figures if figure.broken]
    counts = {f.rule: f.value for f in figures if f.what == "samples" and f.drift == 0}
    assert counts["betting"] < counts["looks"] < counts["once"]


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("confidence", [0.3, 3.0])
def test_exchanged_models_are_even_softly_too(
    design: Design, score: ScoreName, confidence: float
) -> None:
    """In every design, with a strong order effect; a drop is seen as far as the world says."""
    world = SoftWorld(0.82, 0.9, 0.3, confidence, design, score)
    generator = np.random.default_rng(0)
    equal = world.draw(generator, (1, 200_000), 0.3, equal=True)
    dropped = world.draw(generator, (1, 200_000), 0.3, equal=False).mean()
    assert equal.mean() == pytest.approx(0.5, abs=4 * equal.std() / 200_000**0.5)
    assert 0.5 - dropped == pytest.approx(0.2 * world.sees, rel=0.05)


@pytest.mark.parametrize("confidence", [0.3, 1.0, 3.0])
def test_a_judge_gives_the_verdicts_whatever_its_confidence(confidence: float) -> None:
    """Only soft scores shrink with it; ties are as many as they are said to be."""
    world = SoftWorld(0.82, 0.0, 0.3, confidence, "balanced", "verdict")
    scores = world.draw(np.random.default_rng(0), (1, 200_000), 0.5, equal=True)
    assert (scores == 0.5).mean() == pytest.approx(0.3, abs=0.005)
    soft = replace(world, score="soft")
    assert (soft.sees < 0.35 * world.sees) == (confidence < 1)


@pytest.mark.slow
def test_quick_figures_fill_the_page(tmp_path: Path) -> None:
    """Every part is measured, in a process as a user starts it, and the page has all tables."""
    page = tmp_path / "arena.md"
    page.write_text((ROOT / "benchmarks" / "results" / "arena.md").read_text(encoding="utf-8"))
    command = ["-m", "benchmarks.arena", "--quick", "--json", f"{tmp_path / 'arena.json'}"]
    # A process begins with the peak of memory of the one that started it: that of a shell is small.
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    done = subprocess.run(
        [*shell, sys.executable, *command, "--page", f"{page}"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "arena.json").read_text(encoding="utf-8"))
    assert {"runs", "needed", "rates", "leaderboard_seconds"} <= document.keys()
    assert {"soft_rates", "seen"} <= document.keys()
    (run,) = document["runs"]["rows"]
    timed = dict(zip(document["runs"]["columns"], run, strict=True))
    assert timed["warm_inputs"] == 0 < timed["cold_inputs"]
    assert document["leaderboard_seconds"] < 1
    filled = page.read_text(encoding="utf-8")
    assert "--quick; " not in filled
    assert "broken" in filled
    assert "| both | betting, strict |" in filled


@pytest.mark.slow
def test_scores_see_a_rare_heavy_fault_that_battles_hardly_see() -> None:
    """At the same number of calls; equal models are told apart by neither more than promised."""
    rows = [row for row in faults_seen((100,), 20) if row.noise == 0.1]
    share = {(row.fault, row.method): row.share for row in rows}
    assert share["stop=0.05", "overall score"] > share["stop=0.05", "battles, both orders"] + 0.4
    assert max(share["none", method] for method in METHODS) <= 0.2
    assert {row.method for row in rows} == set(METHODS)
