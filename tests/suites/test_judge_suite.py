"""The shipped suite of judges against its accepted numbers: worse judges regress."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.gate import Judgement, judge
from pytest_cepbench.gate.baseline import baseline_path, read_baseline
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite
from pytest_cepbench.suites.gate_config import Overrides, claim_of, settle
from tests.reference.shipped import copy_suite, gate

ROOT = Path(__file__).parents[2]

AGREEMENT = "overall-agreement"

MUTE = "python:tests.measures.test_answer_measures:mute"


def judged(store: Store, spec: str, *names: str) -> dict[str, Judgement]:
    """The verdicts on some cases of the shipped suite with a judge under test."""
    choices = RoleChoices(roles={"judge": spec})
    prepared = load_prepared_suite(ROOT / "suites" / "judge" / "suite.toml", choices, {})
    run = prepared.run(ModelPool(store))
    claims = {c.key: claim_of(run.suite, c.key, Overrides()) for c in prepared.cases}
    policies = settle(claims)
    return {
        case.id: judge(
            run.measure(case),
            read_baseline(baseline_path(ROOT / "baselines", case.key), case.key),
            policies[case.key],
        )
        for case in prepared.cases
        if case.id in names
    }


def test_a_judge_that_errs_more_often_regresses(store: Store) -> None:
    """One of five verdicts turned around: seen over all, though no single category proves it."""
    (verdict,) = judged(store, "shapes:?flip=0.2", AGREEMENT).values()
    assert verdict.verdict == "regressed"
    assert verdict.difference == pytest.approx(-0.2, abs=0.05)


def test_a_judge_that_names_no_verdict_regresses(store: Store) -> None:
    """It agrees with nobody, in any category, and each verdict that is missing is counted."""
    cases = (AGREEMENT, "swap-agreement", "overall-judge_failures")
    verdicts = judged(store, MUTE, *cases)
    assert {name: str(own.verdict) for name, own in verdicts.items()} == dict.fromkeys(
        cases, "regressed"
    )


@pytest.mark.slow
def test_the_gate_is_run_as_a_user_runs_it(tmp_path: Path) -> None:
    """The exact judge holds in every case; one that errs does not."""
    place = copy_suite("judge", tmp_path)
    code, report = gate(place, "suites/judge", "--judge=shapes:")
    assert code == 0
    outcomes = [case["verdict"] for case in report["cases"] if case["metric"] == "agreement"]
    assert outcomes == ["held"] * 11
    code, report = gate(place, "suites/judge", "--judge=shapes:?flip=0.3")
    assert code == 1


@pytest.mark.slow
def test_a_panel_of_ones_own_takes_the_place_of_the_battles(tmp_path: Path) -> None:
    """With `--cep-data`, and baselines of its own."""
    place = copy_suite("judge", tmp_path)
    lines = (place / "suites/judge/battles.jsonl").read_text("utf-8").splitlines()
    (place / "mine").mkdir()
    (place / "mine" / "battles.jsonl").write_text("\n".join(lines[:48]), encoding="utf-8")
    own = ("--cep-data=judge=mine", "--cep-baselines=own", "suites/judge")
    code, _ = gate(place, *own, "--judge=shapes:", "--snapshot-update")
    assert code == 0
    code, report = gate(place, *own, "--judge=shapes:?flip=0.9")
    assert code == 1
    assert {case["n"] for case in report["cases"] if case["part"] == "overall"} == {48}
