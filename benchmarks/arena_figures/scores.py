"""What sees a fault better at the same number of calls: battles, or scores of single answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.outcome import CRITERIA, EVEN, HIGHEST_SCORE
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes.arena import (
    WEIGHTS,
    AnswerDegradation,
    degraded_answer,
    load_shapes_arena,
    score_answer,
    solve_sample,
)
from pytest_cepbench.gate.statistics import Differences
from pytest_cepbench.gate.statistics.sign_flips import flip_p_value
from pytest_cepbench.models.rule_based.arena_models import MARGIN

Array = npt.NDArray[np.float64]

METHODS = ("battles, both orders", "battles, one order", "overall score", "correctness score")

FAULTS: dict[str, dict[str, float]] = {
    "none": {},
    "miss=0.05": {"miss": 0.05},
    "recolor=0.05": {"recolor": 0.05},
    "no_image=0.05": {"no_image": 0.05},
    "stop=0.05": {"stop": 0.05},
}
"""What the candidate does worse than the accepted model."""

ACCEPTED = {"miss": 0.05}
"""Knobs of the accepted model: it has faults of its own, as every trained one has, and the
candidate's come on top."""

NOISES = (0.0, 0.1, 0.3)
"""Standard deviation of how a judge errs about an answer's truth, in each call."""


@dataclass(frozen=True)
class Seen:
    """How often a fault is seen.

    fault: of the candidate. noise: of the judge. method: how it is asked. calls: of the judge.
    lost: truth that the fault costs on average. share: of runs whose mean difference lies below 0
    by the gate's upper bound at level alpha.
    """

    fault: str
    noise: float
    method: str
    calls: int
    lost: float
    share: float
    runs: int


@dataclass(frozen=True)
class _Truths:
    """Truth of the answers of one model: (questions, 7) criteria, (questions,) weighted sums."""

    criteria: Array
    total: Array


def faults_seen(
    calls: Sequence[int], runs: int, per_category: int = 24, alpha: float = 0.05
) -> Iterator[Seen]:
    """On questions of the instrument, with answers of the rule-based models, by simulated judges.

    A judge perceives the truth of an answer with an error that is drawn anew in every call; a
    battle compares two such perceptions, a score is one of them, in all criteria, rounded. The
    accepted answers' scores are stored, so they cost no call, and have errors of their own.
    """
    samples = load_shapes_arena(per_category).samples
    accepted = _truths(samples, ACCEPTED, "accepted")
    for fault, added in FAULTS.items():
        knobs = ACCEPTED | {name: ACCEPTED.get(name, 0.0) + more for name, more in added.items()}
        candidate = _truths(samples, knobs, fault)
        lost = float((accepted.total - candidate.total).mean())
        for noise, method, count in itertools.product(NOISES, METHODS, calls):
            world = _World(method, accepted, candidate, noise)
            generator = np.random.default_rng([ord(c) for c in f"{fault}{noise}{method}{count}"])
            seen = sum(world.sees(count, generator, alpha) for _ in range(runs))
            yield Seen(fault, noise, method, count, lost, seen / runs, runs)


def _truths(samples: Sequence[Sample], knobs: Mapping[str, float], tag: str) -> _Truths:
    rows = []
    for sample in samples:
        solution = solve_sample(sample)
        seed = derive_seed(0, f"{tag} {sample.id}", 0)
        steps = degraded_answer(solution, AnswerDegradation(**knobs), seed)
        answered = [
            (text, None if image is None else ImageArtifact(image.pixels)) for text, image in steps
        ]
        truth = score_answer(solution, answered)
        rows.append([getattr(truth, name) for name in CRITERIA])
    criteria = np.array(rows)
    return _Truths(criteria, criteria @ np.array(WEIGHTS))


@dataclass(frozen=True)
class _World:
    """A judge with errors of a size, who compares two models by one of `METHODS`."""

    method: str
    accepted: _Truths
    candidate: _Truths
    noise: float

    def sees(self, calls: int, generator: np.random.Generator, alpha: float) -> bool:
        """Whether so many calls of the judge show that the candidate is worse."""
        n = calls // 2 if self.method == METHODS[0] else calls
        chosen = generator.choice(len(self.accepted.total), n, replace=False)
        battles = self.method in METHODS[:2]
        values = self._battles(chosen, generator) if battles else self._scores(chosen, generator)
        differences = Differences(values, np.zeros(n, np.int64), np.arange(n))
        return flip_p_value(differences.parts, alpha) <= alpha

    def _battles(self, chosen: npt.NDArray[np.int64], generator: np.random.Generator) -> Array:
        """(n,) scores of battles, less one half."""
        orders = 2 if self.method == METHODS[0] else 1
        shape = orders, 2, len(chosen)
        ours, theirs = np.moveaxis(self.noise * generator.standard_normal(shape), 1, 0)
        lead = self.candidate.total[chosen] + ours - self.accepted.total[chosen] - theirs
        verdicts = np.where(np.abs(lead) <= MARGIN, EVEN, (lead > 0).astype(np.float64))
        scores: Array = verdicts.mean(axis=0) - EVEN
        return scores

    def _scores(self, chosen: npt.NDArray[np.int64], generator: np.random.Generator) -> Array:
        """(n,) differences of scores, in [-1, 1]."""
        columns = slice(0, 1) if self.method == METHODS[3] else slice(None)
        means = []
        for truths in (self.candidate, self.accepted):
            errors = self.noise * generator.standard_normal((len(chosen), 1))
            perceived = HIGHEST_SCORE * (truths.criteria[chosen][:, columns] + errors)
            means.append(np.clip(np.round(perceived), 0, HIGHEST_SCORE).mean(axis=1))
        differences: Array = (means[0] - means[1]) / HIGHEST_SCORE
        return differences
