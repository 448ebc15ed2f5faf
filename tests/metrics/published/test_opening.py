"""OpenING's printed figures, recomputed from the verdicts that its authors released."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.metrics.battles import (
    TIE_POLICIES,
    BattleTable,
    Forfeit,
    JudgedBattle,
    battle_records,
)
from pytest_cepbench.metrics.judge_agreement import (
    agreement,
    confusion,
    shared_battles,
)
from pytest_cepbench.metrics.judge_card import judge_card
from pytest_cepbench.metrics.pair_models import (
    ELO,
    fit_ratings,
)
from tests.metrics.published.tables import load

RELEASED = Path(__file__).parents[4] / "shared" / "data" / "opening"

RELEASED_FILES = pytest.mark.skipif(
    not RELEASED.is_dir(), reason=f"OpenING's released verdicts are not in {RELEASED}"
)

TABLE_2 = load("opening_2", words=2)

# Of the arranged battles without a human verdict, those in which Anole gave no answer; the printed
# row of people counts them against it, and no opponent's row counts them in its favour.
ANOLE_FORFEITS = [Forfeit(f"missing {i}", "anole", "NExT-GPT") for i in range(16)]


def panel(judge: str) -> BattleTable:
    """A judge's verdicts, each on a question of its own: win rates do not see which they share."""
    battles = []
    for (first, second), counts in load(f"opening_{judge}", words=2).rows.items():
        for winner, count in zip(WINNERS, counts.astype(int).tolist(), strict=True):
            battles += [
                JudgedBattle(f"{first}/{second}/{winner}/{i}", first, second, winner)
                for i in range(count)
            ]
    return BattleTable(battles)


def released(judge: str) -> list[JudgedBattle]:
    """A judge's verdicts as they were released."""
    records = json.loads((RELEASED / f"{judge}_verdicts.json").read_text("utf-8"))
    return [
        JudgedBattle(r["data_id"], r["model_A"]["name"], r["model_B"]["name"], r["winner"])
        for r in records
    ]


@pytest.mark.parametrize("judge", ["human", "gpt4o"])
def test_win_rates_of_table_2(judge: str) -> None:
    """All 88 cells of both panels, Anole's row of people with its forfeits."""
    forfeits = ANOLE_FORFEITS if judge == "human" else []
    records = battle_records(panel(judge), forfeits, "charged")
    rows = {row[1]: numbers for row, numbers in TABLE_2.rows.items() if row[0] == judge}

    assert records.keys() == rows.keys()
    for model, printed in rows.items():
        rates = [records[model].win_rate(policy) for policy in TIE_POLICIES]
        assert [round(100 * (rate or 0), 2) for rate in rates] == printed.tolist(), model


RANDOM = {
    "fdt": (49.83, 49.86, 49.79, 49.83),
    "three_way": (32.60, 32.03, 33.18, 32.60),
    "decided": (50.00, 48.36, 51.89, 50.06),
}
"""Its row of Table 3: all, seen, unseen, and the harmonic mean of the last two."""


@pytest.mark.parametrize("reading", RANDOM)
def test_random_of_table_3_is_a_coin_of_four_sides(reading: str) -> None:
    """All 12 cells lie within three standard errors of what such a coin agrees with people.

    It gives each of the four verdicts a quarter: ties forced, and both decided, it is right in half
    of the battles, and as one verdict in a quarter of those that people decided and half of others.
    """
    seen, unseen = np.zeros(4), np.zeros(4)
    for pair, counts in load("opening_human", words=2).rows.items():
        part = unseen if {*pair} & {"anole", "SEED-LLaMA", "NExT-GPT", "GPT-4o+DALL-E3"} else seen
        part += counts
    expected, errors = [], []
    for counts in (seen + unseen, seen, unseen):
        tied = counts[1:3].sum() / counts.sum()
        share = 0.25 + 0.25 * tied if reading == "three_way" else 0.5
        # Where both have to decide, half of what people decided is left.
        battles = counts.sum() * ((1 - tied) / 2 if reading == "decided" else 1)
        expected.append(100 * share)
        errors.append(100 * np.sqrt(share * (1 - share) / battles))
    expected.append(2 / (1 / expected[1] + 1 / expected[2]))
    errors.append(np.hypot(*errors[1:]) / 2)

    assert np.all(np.abs(np.array(RANDOM[reading]) - expected) < 3 * np.array(errors))
    if reading == "three_way":
        assert round(expected[0], 2) == 32.64


@RELEASED_FILES
@pytest.mark.parametrize("judge", ["human", "gpt4o"])
def test_counts_are_those_of_the_released_files(judge: str) -> None:
    """The counts in this folder are the released verdicts, counted."""
    assert battle_records(BattleTable(released(judge))) == battle_records(panel(judge))


@RELEASED_FILES
def test_confusion_and_kappa_of_the_two_panels() -> None:
    """Counted once outside of this package: 4,302 battles that people and GPT-4o both judged."""
    shared = shared_battles(released("human"), released("gpt4o"))

    assert confusion(shared).tolist() == [
        [1329, 12, 5, 216],
        [534, 18, 4, 153],
        [317, 3, 3, 282],
        [536, 10, 3, 877],
    ]
    forced, three_way = agreement(shared, "fdt"), agreement(shared, "three_way")
    assert (round(forced.kappa or 0, 3), round(three_way.kappa or 0, 3)) == (0.412, 0.259)
    assert (round(forced.chance or 0, 4), round(three_way.chance or 0, 4)) == (0.5279, 0.3631)


@RELEASED_FILES
def test_card_of_gpt4o() -> None:
    """What GPT-4o does wrong, counted once outside of this package."""
    card = judge_card(released("gpt4o"), released("human"))
    by_model = {model.model: round(model.bias, 3) for model in card.models}

    assert card.battles == 4302
    assert round(card.accuracy, 3) == 0.711
    assert round(card.first_right.value or 0, 3) == 0.834
    assert round(card.second_right.value or 0, 3) == 0.574
    assert round(card.score_correlation or 0, 3) == 0.414
    assert round(card.score_correlation_within or 0, 3) == 0.294
    assert (round(card.bias_rms, 3), card.largest_bias.model) == (0.071, "NExT-GPT")
    assert (by_model["NExT-GPT"], by_model["GPT-4o+DALL-E3"]) == (-0.126, 0.107)
    assert round(card.slope or 0, 2) == 1.34
    assert card.sentence() == (
        "a judge that agrees with people at 0.71 sees 0.42 of a true drop, and needs 5.6 times the "
        "samples"
    )


@RELEASED_FILES
def test_ratings_of_the_human_panel() -> None:
    """In Elo points; fitted once by other code, on the battles that both panels judged or on all."""
    shared = shared_battles(released("human"), released("human"))
    fit = fit_ratings(BattleTable([battle for battle, _ in shared]))
    assert round(fit.loss, 1) == 4943.6
    assert (round(fit.order_effect or 0, 3), round(fit.tie, 3)) == (0.083, -0.195)
    rows = sorted(zip(fit.ratings * ELO, fit.models, strict=True), reverse=True)
    assert ", ".join(f"{model} {rating:.0f}" for rating, model in rows) == (
        "Human 251, GPT-4o+DALL-E3 226, Gemini1.5+Flux 108, anole 10, SEED-X 5, SEED-LLaMA -37, "
        "Emu2 -71, Show-o -89, MiniGPT-5 -115, NExT-GPT -121, gill -166"
    )
