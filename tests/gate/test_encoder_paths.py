"""Encoders that part ways over a training: the rule, its error, and the files behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import SeriesError
from pytest_cepbench.gate.series import EncoderScores, partings, read_scores, write_scores
from pytest_cepbench.gate.series.encoder_paths import comparable_digest, scores_folder

N = 40


def scores(encoder: str, look: int, values: Any, **fields: Any) -> EncoderScores:
    """Of one checkpoint under one encoder."""
    rest: dict[str, Any] = {
        "case": "toy/overall/gc",
        "model": f"step-{look}",
        "identity": "same",
        "higher_is_better": True,
        "sets": False,
        "tolerance": 0.01,
        "alpha": 0.05,
        "reward": encoder == "rewarded",
        "held_out": encoder == "held",
    } | fields
    named = {f"s{n}": float(value) for n, value in enumerate(values)}
    return EncoderScores(format=1, encoder=encoder, look=look, scores={"a": named}, **rest)


def path(encoder: str, slope: float, *, looks: int = 5, seed: int = 0, **fields: Any) -> list[Any]:
    """A training in which the mean score moves by so much at each checkpoint."""
    rng = np.random.default_rng([seed, len(encoder)])
    base = rng.normal(0.7, 0.1, N)
    return [
        scores(encoder, look, base + slope * look + rng.normal(0, 0.01, N), **fields)
        for look in range(1, looks + 1)
    ]


def test_a_rise_and_a_fall_part_ways() -> None:
    """The sentence names both encoders, the held-out one as such, and both changes."""
    (parting,) = partings([*path("rewarded", 0.01), *path("held", -0.01)])

    assert parting.parted
    assert (parting.first, parting.last, parting.checkpoints) == (1, 5, 5)
    assert parting.of_reward.mean == pytest.approx(0.04, abs=0.005)
    assert parting.of_encoder.mean == pytest.approx(-0.04, abs=0.005)
    assert "under rewarded (the reward's encoder) rises by +0.03" in parting.sentence
    assert "under held (held out) falls by -0.04" in parting.sentence


@pytest.mark.parametrize(
    ("reward", "other"), [(0.01, 0.0), (0.0, -0.01), (0.01, 0.01), (-0.01, 0.01), (0.0005, -0.0005)]
)
def test_nothing_else_does(reward: float, other: float) -> None:
    """One that stays, both that rise, the wrong way round, and less than the tolerance apart."""
    (parting,) = partings([*path("rewarded", reward), *path("held", other)])
    assert not parting.parted


def test_the_direction_is_the_metrics() -> None:
    """Of a distance, lower is better: the reward's falls and the other's grows."""
    lower = {"higher_is_better": False}
    pairs = partings([*path("rewarded", -0.01, **lower), *path("held", 0.01, **lower)])
    assert [pair.parted for pair in pairs] == [True]
    assert pairs[0].of_reward.mean > 0 > pairs[0].of_encoder.mean


@given(st.floats(-5, 5), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_a_constant_changes_nothing(shift: float, seed: int) -> None:
    """What a sample scores is its own; only its movement counts."""
    plain = partings([*path("rewarded", 0.01, seed=seed), *path("held", -0.01, seed=seed)])
    moved = [
        scores("held", record.look, [v + shift for v in record.scores["a"].values()])
        for record in path("held", -0.01, seed=seed)
    ]
    (shifted,) = partings([*path("rewarded", 0.01, seed=seed), *moved])
    assert shifted.of_encoder.mean == pytest.approx(plain[0].of_encoder.mean, abs=1e-9)


def test_few_checkpoints_and_other_conditions_say_nothing() -> None:
    """Two checkpoints are a difference; checkpoints before a change of conditions do not count."""
    assert partings([*path("rewarded", 0.01, looks=2), *path("held", -0.01, looks=2)]) == []
    changed = [
        scores("held", record.look, record.scores["a"].values(), identity=f"{record.look > 3}")
        for record in path("held", -0.01)
    ]
    assert partings([*path("rewarded", 0.01), *changed]) == []


def test_samples_that_one_checkpoint_lacks_are_left_out() -> None:
    """A look at fewer samples narrows the comparison to those."""
    first, *others = path("held", -0.01)
    few = scores("held", 1, list(first.scores["a"].values())[:20])
    (parting,) = partings([*path("rewarded", 0.01), few, *others])
    assert (parting.of_reward.units, parting.of_encoder.units) == (N, 20)


@pytest.mark.slow
def test_encoders_that_do_not_move_are_rarely_warned_of() -> None:
    """Over 100 trainings of 12 checkpoints looked at each time: not above alpha, as promised."""
    warned = 0
    for seed in range(100):
        reward, held = (path(name, 0.0, looks=12, seed=seed) for name in ("rewarded", "held"))
        warned += any(
            pair.parted
            for last in range(3, 13)
            for pair in partings([*reward[:last], *held[:last]])
        )
    assert warned / 100 <= 0.05


def test_files_come_back_and_replace_each_other(tmp_path: Path) -> None:
    """One for each checkpoint, encoder and case; a checkpoint that is gated again has one."""
    record = tmp_path / "series" / "run.jsonl"
    assert read_scores(record) == []
    kept = [*path("rewarded", 0.01, looks=3), *path("held", -0.01, looks=3)]
    for checkpoint in [*kept, *kept]:
        write_scores(record, checkpoint)
    assert sorted(read_scores(record), key=repr) == sorted(kept, key=repr)
    assert len(list(scores_folder(record).iterdir())) == 6


@pytest.mark.parametrize("text", ["", "{}", '{"format":2}', "null", "[1", '{"format":1,"x":1}'])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    """Never a warning left out in silence."""
    record = tmp_path / "series" / "run.jsonl"
    write_scores(record, path("held", 0.0)[0])
    (file,) = scores_folder(record).iterdir()
    file.write_text(text)
    with pytest.raises(SeriesError, match=file.name):
        read_scores(record)


def test_identities_have_a_digest_of_all_their_fields() -> None:
    """In any order."""
    first, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    assert comparable_digest(first) == comparable_digest(other)
    assert comparable_digest(first) != comparable_digest({"a": "1", "b": "3"})
