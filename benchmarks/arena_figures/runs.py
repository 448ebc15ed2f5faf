"""Whole runs of `arena-instrument` in pytest processes of their own, and a leaderboard."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.whole_runs import Spent, run_pytest
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.studies.arena import make_leaderboard

_SUITE = Path(__file__).resolve().parents[2] / "suites" / "arena"

_ACCEPTED, _CANDIDATE = "shapes:?miss=0.2", "shapes:?recolor=0.2"
"""Alike in level and in hardly an answer, so that nearly every question needs a battle."""

_PER_CATEGORY = "samples_per_category = 24"
CATEGORIES = 10


@dataclass(frozen=True)
class ArenaRuns:
    """Runs of the suite of one size against accepted answers, both orders.

    questions: how many. cold: with the accepted answers alone in the store; warm: everything.
    cold_inputs, warm_inputs: of models, judge included. warm_loads: of models.
    """

    questions: int
    cold: Spent
    warm: Spent
    cold_inputs: int
    warm_inputs: int
    warm_loads: int


def arena_runs(folder: Path, per_category: int, repeats: int) -> ArenaRuns:
    """Accept one model, then gate another: its answers and battles new, and all of them stored.

    The quickest of the repeats counts, cold and warm in turns. Raises RuntimeError where a run
    fails.
    """
    project = folder / str(per_category)
    suite = project / "arena"
    shutil.copytree(_SUITE, suite, ignore=shutil.ignore_patterns("__pycache__"))
    text = (suite / "instrument.toml").read_text(encoding="utf-8")
    assert _PER_CATEGORY in text, "the suite says how many questions it has"
    sized = text.replace(_PER_CATEGORY, f"samples_per_category = {per_category}")
    (suite / "instrument.toml").write_text(sized, encoding="utf-8")
    (project / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    # A tolerance that neither model exceeds: what is timed are runs that pass.
    plain = ("arena/test_arena_instrument.py", "--cep-baselines=baselines", "--cep-tolerance=0.45")
    run_pytest(project, *plain, f"--model={_ACCEPTED}", "--snapshot-update")
    accepted = project / "accepted"
    (project / ".cepbench").rename(accepted)
    cold, warm = [], []
    for _ in range(repeats):
        shutil.rmtree(project / ".cepbench", ignore_errors=True)
        shutil.copytree(accepted, project / ".cepbench")
        cold.append(run_pytest(project, *plain, f"--model={_CANDIDATE}"))
        cold_effort = _effort(project)
        warm.append(run_pytest(project, *plain, f"--model={_CANDIDATE}"))
        warm_effort = _effort(project)
    return ArenaRuns(
        questions=CATEGORIES * per_category,
        cold=min(cold, key=lambda spent: spent.cpu),
        warm=min(warm, key=lambda spent: spent.cpu),
        cold_inputs=cold_effort["inputs"],
        warm_inputs=warm_effort["inputs"],
        warm_loads=warm_effort["loads"],
    )


def _effort(project: Path) -> dict[str, int]:
    report = json.loads((project / ".cepbench" / "report.json").read_text(encoding="utf-8"))
    effort: dict[str, int] = report["effort"]
    return effort


def leaderboard_seconds(models: int = 14, battles: int = 5002, repeats: int = 3) -> float:
    """CPU seconds of a leaderboard of so many models and verdicts; the quickest of the repeats."""
    generator = np.random.default_rng(0)
    levels = np.linspace(-1, 1, models)
    verdicts: dict[tuple[str, str, str], JudgedBattle] = {}
    while len(verdicts) < battles:
        first, second = generator.choice(models, 2, replace=False).tolist()
        question = str(generator.integers(2160))
        latent = levels[first] - levels[second] + generator.logistic()
        winner = WINNERS[int(np.searchsorted([-1.0, 0.0, 1.0], -latent))]
        names = f"model {first:02}", f"model {second:02}"
        verdicts[question, *names] = JudgedBattle(question, *names, winner)
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        make_leaderboard("simulated", list(verdicts.values()))
        seconds.append(time.process_time() - started)
    return min(seconds)
