"""Win rates: by their definitions, in both orders, with forfeits."""

from __future__ import annotations

from math import isclose, isnan

import pytest
from hypothesis import given

from pytest_cepbench.metrics.battles import (
    TIE_POLICIES,
    BattleRecord,
    BattleTable,
    Forfeit,
    ForfeitPolicy,
    JudgedBattle,
    battle_records,
    pairwise_win_rates,
)
from tests.metrics.arena.panels import panels, swap

PANEL = [
    JudgedBattle("q1", "a", "b", "A"),
    JudgedBattle("q2", "a", "b", "Tie(A)"),
    JudgedBattle("q3", "b", "a", "Tie(A)"),
    JudgedBattle("q4", "b", "a", "A"),
    JudgedBattle("q5", "a", "c", "B"),
]


def test_policies() -> None:
    """Of a: one battle won, two tied (one leaning to it), two lost."""
    record = battle_records(BattleTable(PANEL))["a"]

    assert record == BattleRecord(wins=1, ties_for=1, ties_against=1, losses=2)
    rates = {policy: record.win_rate(policy) for policy in TIE_POLICIES}
    assert rates == {
        "fdt": 2 / 5,
        "without_ties": 1 / 3,
        "ties_as_zero": 1 / 5,
        "ties_as_half": 2 / 5,
    }


def test_a_model_with_ties_alone_has_no_rate_without_them() -> None:
    """None, not 0: nothing was decided."""
    record = battle_records(BattleTable([JudgedBattle("q", "a", "b", "Tie(B)")]))["a"]

    assert record.win_rate("without_ties") is None
    assert [record.win_rate(p) for p in ("fdt", "ties_as_zero", "ties_as_half")] == [0, 0, 0.5]


@given(panels())
def test_rates_average_one_half(battles: list[JudgedBattle]) -> None:
    """What one model wins another loses: weighted by battles, forced and half rates average 1/2."""
    records = battle_records(BattleTable(battles)).values()
    total = sum(record.battles for record in records)
    for policy in ("fdt", "ties_as_half"):
        won = sum((record.win_rate(policy) or 0) * record.battles for record in records)
        assert isclose(won, total / 2, abs_tol=1e-9)


@given(panels())
def test_order_and_sequence_do_not_matter(battles: list[JudgedBattle]) -> None:
    """Exchanged sides and another order of the file give the same records."""
    records = battle_records(BattleTable(battles))
    assert battle_records(BattleTable(swap(battles))) == records
    assert battle_records(BattleTable(battles[::-1])) == records


def test_both_orders_count_once() -> None:
    """A battle judged in both orders is one battle, half of each verdict."""
    record = battle_records(
        BattleTable([JudgedBattle("q", "a", "b", "A"), JudgedBattle("q", "b", "a", "Tie(A)")])
    )["a"]

    assert record == BattleRecord(wins=0.5, ties_against=0.5)
    assert record.battles == 1


@pytest.mark.parametrize(
    ("policy", "absent", "opponent"),
    [
        ("charged_and_credited", BattleRecord(wins=1, losses=2), BattleRecord(wins=1)),
        ("charged", BattleRecord(wins=1, losses=2), BattleRecord()),
        ("ignored", BattleRecord(wins=1, losses=1), None),
    ],
)
def test_forfeits(
    policy: ForfeitPolicy, absent: BattleRecord, opponent: BattleRecord | None
) -> None:
    """A missing answer loses; its opponent, without another battle, wins where it is credited."""
    battles = [JudgedBattle("q1", "a", "b", "A"), JudgedBattle("q2", "a", "b", "B")]
    records = battle_records(BattleTable(battles), [Forfeit("q3", "a", "c")], policy)

    assert records["a"] == absent
    assert records.get("c") == opponent


def test_pairwise() -> None:
    """A model's rate against another one is 1 less the other's; none where they never met."""
    rates = pairwise_win_rates(BattleTable(PANEL), "ties_as_half")

    assert rates[0].tolist()[1:] == [0.5, 0.0]
    assert rates[1, 0] == 0.5
    assert rates[2, 0] == 1
    assert all(isnan(rates[i, i]) for i in range(3))
    assert isnan(rates[1, 2])
