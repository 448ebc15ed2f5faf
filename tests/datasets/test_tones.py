"""The world of tones: what is played can be read back, whatever the seed, rate and loudness."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pytest_cepbench.artifacts import Sound
from pytest_cepbench.datasets.tones import (
    BEEPS,
    MOST_BEEPS,
    SILENCE,
    Beep,
    ToneKnobs,
    Tune,
    degrade_tune,
    features,
    load_tones,
    parse_sound,
    parse_text,
    render,
    tune_text,
)
from pytest_cepbench.errors import DatasetError

TUNES = st.lists(st.sampled_from(BEEPS), max_size=MOST_BEEPS).map(tuple)
SEEDS = st.integers(0, 2**32 - 1)

ALL: Tune = (
    Beep("low", "short", "sine"),
    Beep("middle", "long", "square"),
    Beep("high", "short", "saw"),
    Beep("low", "long", "saw"),
    Beep("high", "long", "sine"),
)


@given(TUNES, SEEDS)
def test_a_tune_is_read_back(tune: Tune, seed: int) -> None:
    """From its text, and from its samples."""
    assert parse_text(tune_text(tune)) == tune
    assert parse_sound(render(tune, seed)) == tune


@given(
    arrays(np.float32, st.integers(1, 5000), elements=st.floats(-1, 1, width=32)),
    st.sampled_from((1_000, 8_000, 48_000)),
)
def test_any_sound_is_read_as_some_tune(samples: npt.NDArray[np.float32], rate: int) -> None:
    """Nothing raises, and no tune has more beeps than the world knows."""
    assert len(parse_sound(Sound(samples, rate))) <= MOST_BEEPS


def test_texts_are_read_for_their_beeps() -> None:
    """Whatever stands around them; words in another order are none."""
    for text, tune in (
        ("", ()),
        (SILENCE, ()),
        ("A HIGH  short\nSine, then nothing", (Beep("high", "short", "sine"),)),
        ("high sine short; low long squares", ()),
        ("a low long saw " * 7, (Beep("low", "long", "saw"),) * MOST_BEEPS),
    ):
        assert parse_text(text) == tune


def test_features_tell_every_change() -> None:
    """None is zero; the more differs, the less alike."""

    def alike(one: Tune, other: Tune) -> float:
        a, b = features(one), features(other)
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    first, rest = ALL[0], ALL[1:]
    assert alike(ALL, ALL) == pytest.approx(1.0)
    assert alike((), ()) == pytest.approx(1.0)
    assert alike((), ALL) == 0.0
    one = alike(ALL, (Beep("high", first.length, first.timbre), *rest))
    two = alike(ALL, (Beep("high", "long", first.timbre), *rest))
    assert 1.0 > one > two > alike(ALL, rest) > 0.0
    assert alike(ALL, (ALL[1], ALL[0], *ALL[2:])) < 1.0
    one_beep = np.zeros(49)
    one_beep[[0, 3, 5]] = 1.0
    one_beep[[40, 43, 45]] = 0.5
    assert features(ALL[:1]).tolist() == one_beep.tolist()


@pytest.mark.parametrize("knob", ["miss", "shift", "stretch", "revoice"])
def test_a_knob_does_what_it_says(knob: str) -> None:
    """To all beeps at 1, and to about as many as it says below; more of it undoes nothing."""
    whole = degrade_tune(ALL, ToneKnobs(**{knob: 1.0}), 3)
    assert whole is not None
    if knob == "miss":
        assert whole == ()
    else:
        attribute = {"shift": "pitch", "stretch": "length", "revoice": "timbre"}[knob]
        for before, after in zip(ALL, whole, strict=True):
            changed = {n for n in vars(before) if getattr(before, n) != getattr(after, n)}
            assert changed == {attribute}
    for share in (0.1, 0.3, 0.6):
        same = 0
        for seed in range(200):
            made = degrade_tune(ALL, ToneKnobs(**{knob: share}), seed)
            assert made is not None
            same += len(made) if knob == "miss" else sum(map(Beep.__eq__, ALL, made))
        assert same / (200 * len(ALL)) == pytest.approx(1 - share, abs=0.05)


def test_neighbours_change_places_and_answers_go_blank() -> None:
    """Of equal ones there is nothing to exchange; both as often as they say."""
    swapped = [degrade_tune(ALL, ToneKnobs(swap=0.5), seed) for seed in range(200)]
    other = [tune for tune in swapped if tune != ALL]
    assert 70 < len(other) < 130
    for tune in other:
        assert tune is not None
        assert sorted(map(str, tune)) == sorted(map(str, ALL))
        assert sum(map(Beep.__eq__, ALL, tune)) == len(ALL) - 2
    assert degrade_tune(ALL[:2], ToneKnobs(swap=1.0), 0) == (ALL[1], ALL[0])
    assert degrade_tune(ALL[:1] * 3, ToneKnobs(swap=1.0), 0) == ALL[:1] * 3
    blank = [degrade_tune(ALL, ToneKnobs(blank=0.5), seed) is None for seed in range(200)]
    assert 70 < sum(blank) < 130
    assert degrade_tune(ALL, ToneKnobs(), 0) == ALL


def test_the_data_set() -> None:
    """Five categories of what they say, each tune as text and sound, stable over numbers."""
    few, many = load_tones(4), load_tones(9)
    assert few.categories == ("length", "melody", "pitch", "single", "timbre")
    texts = {sample.id: sample.text for sample in many.samples}
    for sample in few.samples:
        assert texts[sample.id] == sample.text
    for sample in many.samples:
        assert sample.text is not None
        tune = parse_text(sample.text)
        assert sample.metadata["tune"] == [vars(beep) for beep in tune]
        assert sample.sound is not None
        assert parse_sound(sample.sound.load()) == tune
        assert sample.sound.load().digest == sample.sound.load().digest
        category = sample.categories[0]
        varied = {
            name
            for name in ("pitch", "length", "timbre")
            if len({getattr(beep, name) for beep in tune}) > 1
        }
        if category in ("pitch", "length", "timbre"):
            assert varied == {category}
            assert 2 <= len(tune) <= 4
        else:
            assert len(tune) == (1 if category == "single" else MOST_BEEPS)
    assert len({text for name, text in texts.items() if name.startswith("single")}) == 9
    # All that differ in length alone: of 9 pitches and timbres, as 2, 3 or 4 beeps.
    every = [sample.text for sample in load_tones(199).in_category("length")]
    assert len({*every}) == len({*every[:198]}) == 9 * (2 + 6 + 14)
    with pytest.raises(DatasetError, match="seed of the tones data set must not be negative"):
        load_tones(1, -1)
