"""Whole trainings in small: the promise of a series holds, by the gate's own judgement."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.error_rates import trainings
from benchmarks.error_rates.trainings import BAD, GOOD, RULES, VALID, Kind, Trainings
from benchmarks.error_rates.worlds import Array
from pytest_cepbench.gate import Policy, Verdict, judge
from pytest_cepbench.gate.policy import SeriesShares
from pytest_cepbench.gate.statistics import checkpoint_share, reference_share
from tests.gate.build import accepted, measured, scored

SMALL = Trainings(runs=12, lengths=(20,), sizes=(100,))

DECLINE = BAD[-1]


@pytest.fixture(scope="module")
def lost() -> Mapping[str, trainings.Hits]:
    """Trainings that lose one tolerance half way, which is tolerated."""
    kind = next(kind for kind in GOOD if kind.name == "one tolerance lost half way")
    return trainings.stopping(kind, 40, 100, Trainings(runs=30))


@pytest.mark.slow
def test_a_series_stops_no_good_training_and_gates_by_themselves_do(
    lost: Mapping[str, trainings.Hits],
) -> None:
    """A loss of one tolerance is no failure; by itself each gate takes it for one."""
    assert lost.keys() == set(RULES)
    assert (lost["single gates"] <= 40).mean() > 0.9
    for rule in VALID:
        assert (lost[rule] <= 40).mean() <= 0.1


@pytest.mark.slow
def test_products_of_e_values_do_not_hold(lost: Mapping[str, trainings.Hits]) -> None:
    """The same samples are no new evidence."""
    assert (lost["products"] <= 40).mean() > 0.1


@pytest.mark.slow
def test_a_slow_decline_is_found_by_every_rule() -> None:
    """Half a tolerance at each of ten checkpoints, each of which is within the tolerance."""
    stops = trainings.stopping(DECLINE, 20, 400, SMALL)
    for rule in VALID:
        assert (stops[rule] > 11).all()
        assert (stops[rule] <= 20).all()


@pytest.mark.slow
def test_figures_have_promises_and_delays() -> None:
    """A quick measurement: nothing is broken, and what is found has a delay."""
    figures = list(trainings.figures(Trainings(runs=10, lengths=(20,), sizes=(100,)), quick=True))
    assert not [figure for figure in figures if figure.broken]
    assert {figure.what for figure in figures} == {
        "false stops",
        "stopped before",
        "found",
        trainings.DELAY,
    }
    assert {figure.rule for figure in figures if figure.promise is not None} == set(VALID)


def _judged(scores: Array, settings: Trainings) -> int:
    """The checkpoint at which the gate itself stops a training; one more than there are for none.

    As runs do it: what holds becomes the baseline, and the first one the anchor.
    """
    records = [
        measured(scored([0.5 + score for score in row]), model={"identity": f"step {k}"})
        for k, row in enumerate(scores.tolist())
    ]
    first = accepted(records[0])
    baseline, at = first, 0
    for number, record in enumerate(records[1:], 1):
        share = checkpoint_share(number)
        shares = SeriesShares(
            share * reference_share(number, at or None), share * reference_share(number, None)
        )
        policy = Policy(tolerance=settings.tolerance, alpha=settings.alpha, series=shares)
        judgement = judge(record, baseline, policy, anchor=first if at else None)
        if judgement.verdict is Verdict.REGRESSED:
            return number
        if judgement.verdict in (Verdict.HELD, Verdict.IMPROVED):
            baseline, at = accepted(record), number
    return len(scores)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GOOD[1], GOOD[2], BAD[1], BAD[2], DECLINE], ids=lambda k: k.name)
def test_the_simulated_series_is_the_gates_own(kind: Kind) -> None:
    """The benchmark leaves out bounds that cannot matter: the whole gate stops at the same."""
    generator = np.random.default_rng(5)
    for _ in range(3):
        quality = kind.course(generator, 1, 20)[0] * SMALL.tolerance
        scores = trainings.scores_of(generator, kind, quality, 100)
        assert trainings.stops_of(scores, SMALL)["series"] == _judged(scores, SMALL)
