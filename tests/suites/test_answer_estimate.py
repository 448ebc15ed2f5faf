"""The forecast of a suite of interleaved answers: what would be asked, counted without asking."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.store import Store
from pytest_cepbench.suites.estimate import Forecast
from tests.suites.answers import ANSWERS, HEAD, WORSE, MeasuredSuite, prepare

PIPELINE = ANSWERS.replace('interleaver = "shapes:"', 'writer = "shapes:"\ngenerator = "shapes:"')


def _foresee(suite: MeasuredSuite) -> Forecast:
    return suite.run.forecast([(case, None) for case in suite.cases.values()])


def _inputs(work: Forecast) -> dict[str, int]:
    return {need.bound.role: need.inputs for need in work.needs if need.inputs}


def _asked(suite: MeasuredSuite) -> dict[str, int]:
    """How many inputs each model was given while everything was measured."""
    for case in suite.cases:
        suite.measure(case)
    roles = suite.run.assignments.roles
    return {role: suite.inputs(role) for role in roles if suite.inputs(role)}


def test_a_new_model_answers_all_and_is_judged_in_both_orders(tmp_path: Path, store: Store) -> None:
    """Answers that are yet to be made are taken to differ, so no more is asked than foreseen."""
    prepare(tmp_path, store).accept()
    worse = prepare(tmp_path, store, model=WORSE)
    work = _foresee(worse)
    assert (_inputs(work), work.samples, work.units, work.steps) == (
        {"interleaver": 20, "judge": 40},
        20,
        20,
        60,
    )
    assert (worse.inputs("interleaver"), worse.inputs("judge")) == (0, 0)
    asked = _asked(worse)
    assert asked["interleaver"] == 20
    assert 20 < asked["judge"] <= 40
    done = _foresee(prepare(tmp_path, store, model=WORSE))
    assert _inputs(done) == {}
    assert done.stored == 20 + asked["judge"]


def test_known_answers_are_judged_where_they_differ(tmp_path: Path, store: Store) -> None:
    """Equal answers need no verdict: the forecast is what is asked then."""
    prepare(tmp_path, store).accept()
    few = "shapes:?miss=0.05"
    prepare(tmp_path, store, model=few).answers()
    suite = prepare(tmp_path, store, model=few)
    work = _foresee(suite)
    assert set(_inputs(work)) == {"judge"}
    assert 0 < work.steps - work.stored < 40
    assert _inputs(work) == _asked(suite)


def test_the_anchor_s_battles_are_foreseen(tmp_path: Path, store: Store) -> None:
    """Each comparison has battles of its own."""
    prepare(tmp_path, store).accept()
    prepare(tmp_path, store, model="shapes:?no_image=1").accept(anchor=True)
    suite = prepare(tmp_path, store, model=WORSE)
    assert _inputs(_foresee(suite)) == {"interleaver": 20, "judge": 80}


def test_reference_answers_are_battled_by_all(tmp_path: Path, store: Store) -> None:
    """Without any accepted ones."""
    text = f'{ANSWERS}\n[arena]\nagainst = "gold"\n'
    suite = prepare(tmp_path, store, text, model=WORSE)
    assert _inputs(_foresee(suite)) == {"interleaver": 20, "judge": 40}


@pytest.mark.parametrize("order", ["balanced", "adaptive"])
def test_one_order_is_half_of_the_verdicts(tmp_path: Path, store: Store, order: str) -> None:
    """How often `adaptive` asks again follows from the verdicts."""
    text = f'{ANSWERS}\n[arena]\norder = "{order}"\n'
    prepare(tmp_path, store, text).accept()
    work = _foresee(prepare(tmp_path, store, text, model=WORSE))
    assert _inputs(work) == {"interleaver": 20, "judge": 20}
    unclear = [need.bound.role for need in work.needs if need.incomplete]
    assert unclear == (["judge"] if order == "adaptive" else [])


def test_scores_are_one_call_for_each_answer(tmp_path: Path, store: Store) -> None:
    """In however many criteria they are gated; the accepted answers' are not needed again."""
    metrics = '[metrics.criteria]\n[metrics.right]\nkind = "criteria"\ncriterion = "correctness"\n'
    text = f'{HEAD}[answer]\n[roles]\ninterleaver = "shapes:"\njudge = "shapes:"\n{metrics}'
    suite = prepare(tmp_path, store, text, model=WORSE)
    assert _inputs(_foresee(suite)) == {"interleaver": 20, "judge": 20}
    suite.answers()
    suite = prepare(tmp_path, store, text, model=WORSE)
    assert _inputs(_foresee(suite)) == {"judge": 20} == _asked(suite)
    assert _inputs(_foresee(prepare(tmp_path, store, text, model=WORSE))) == {}


def test_what_is_drawn_follows_from_the_texts(tmp_path: Path, store: Store) -> None:
    """It is left open until they are written, and is known then for another generator."""
    suite = prepare(tmp_path, store, PIPELINE, model="shapes:", role="writer")
    work = _foresee(suite)
    assert _inputs(work) == {"writer": 20}
    assert [need.bound.role for need in work.needs if need.incomplete] == ["generator"]
    suite.answers()

    other = prepare(tmp_path, store, PIPELINE, model="shapes:?miss=0.1", role="generator")
    work = _foresee(other)
    assert not any(need.incomplete for need in work.needs)
    other.answers()
    assert _inputs(work) == {"generator": other.inputs("generator")}


def test_a_forecast_stores_nothing(tmp_path: Path, store: Store) -> None:
    """No answer with images that are not there, above all."""
    suite = prepare(tmp_path, store, PIPELINE, model="shapes:", role="writer")
    _foresee(suite)
    before = set(store.root.rglob("*"))
    _foresee(suite)
    assert set(store.root.rglob("*")) == before
    assert suite.inputs("writer") == suite.inputs("generator") == 0
    suite.answers()
    made = prepare(tmp_path, store, PIPELINE, model="shapes:?miss=0.1", role="generator")
    _foresee(made)
    assert made.answers() != suite.answers()
