"""Baseline files: what format 2 added comes back, format 1 is read, format 3 is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate import (
    Noise,
    dump_baseline,
    load_baseline,
    record_of,
)
from tests.gate.build import KEY, NAMES, accepted, measured, text_of

FIRST_FORMAT = """\
# Accepted baseline of one case, written by `pytest --snapshot-update`. Review it as a diff.
format = 1
case = "shapes/color/gc"
metric = "GC@3"
value = 0.625
n = 2
higher_is_better = true

[model]
"role" = "describer"
"spec" = "shapes:"
"identity" = "the shapes world's own describer shapes/1 c0ff9ee56746fbc7"

[identity]
"suite" = "shapes/2"
"metric" = "gc/1 at 3, over categories"
"samples" = "2 eb045c246d47e46e"
"data" = "loader=shapes samples_per_category=24 seed=0 version=shapes/1"

[failures]
"empty-text" = 1

[scores."color"]
"color/0000" = 0.5
"color/0001" = 0.75
"""
"""As the first release wrote it: without shares, sizes, blocks, clusters and calibration."""

NOISE = Noise(seeds=3, units=24, sd=0.0125, value_sd=0.0031, effective=18.5, degrees=14.0)

FINITE = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))

SET = measured(
    {"color": {"all": 12.5}},
    higher_is_better=False,
    sizes={"color": 24},
    blocks={"color": {str(i): 12.0 + i / 10 for i in range(12)}},
)


@given(
    blocks=st.dictionaries(NAMES, st.dictionaries(NAMES, FINITE, max_size=4), max_size=3),
    clusters=st.dictionaries(NAMES, NAMES, max_size=4),
    sizes=st.dictionaries(NAMES, st.integers(1, 10**6), max_size=3),
    shares=st.booleans(),
)
def test_what_format_2_added_comes_back(
    blocks: dict[str, dict[str, float]],
    clusters: dict[str, str],
    sizes: dict[str, int],
    shares: bool,
) -> None:
    """Blocks, clusters, sizes and the kind of score, whatever they are called."""
    measurement = measured(blocks=blocks, clusters=clusters, sizes=sizes, shares=shares)
    baseline = accepted(measurement)
    assert baseline.blocks == measurement.blocks
    assert (baseline.clusters, baseline.sizes, baseline.shares) == (clusters, sizes, shares)
    assert baseline.n == measurement.n


def test_calibration_and_acceptance_come_back() -> None:
    """What commands added to a baseline stays in it, and gives the same text again."""
    baseline = replace(accepted(SET), noise=NOISE, accepted={"reason": "new\ndata", "by": "me"})
    text = dump_baseline(baseline)
    again = load_baseline(text, KEY, "x")
    assert again == baseline
    assert dump_baseline(again) == text
    noise = '"sd" = 0.0125\n"value_sd" = 0.0031\n"effective" = 18.5\n"degrees" = 14.0\n'
    assert noise in text
    earlier = load_baseline(text.replace(noise, noise.partition('"effective"')[0]), KEY, "x")
    assert earlier.noise == replace(NOISE, effective=None, degrees=None)


def test_a_file_of_format_1_is_read() -> None:
    """As far as it goes; what it does not say is what was usual then."""
    baseline = load_baseline(FIRST_FORMAT, KEY, "x")
    assert (baseline.format, baseline.value, baseline.n) == (1, 0.625, 2)
    assert baseline.scores == {"color": {"color/0000": 0.5, "color/0001": 0.75}}
    assert baseline.failures == {"empty-text": 1}
    assert (baseline.shares, baseline.sizes, baseline.blocks) == (False, {}, {})
    assert (baseline.clusters, baseline.accepted, baseline.noise) == ({}, {}, None)


@pytest.mark.parametrize("extra", ["", "rounds = 7\n", "sizes = 3\n"])
def test_a_newer_format_is_named_with_the_remedy(extra: str) -> None:
    """Before any field is complained of: the reader needs a newer version, not another file."""
    text = text_of(measured()).replace("format = 2\n", f"format = 3\n{extra}")
    with pytest.raises(BaselineError) as caught:
        load_baseline(text, KEY, "baselines/shapes/color.toml")
    message = str(caught.value)
    assert message.startswith("baseline baselines/shapes/color.toml has format 3, this version ")
    assert "reads up to 2" in message
    assert "install that one, or restore an earlier file from version control" in message


DAMAGE = {
    "a block that is none": ('"3" = 12.3', '"3" = nan'),
    "an infinite block": ('"3" = 12.3', '"3" = inf'),
    "a block beyond all numbers": ('"3" = 12.3', '"3" = -1e999'),
    "a block twice": ('"3" = 12.3', '"3" = 12.3\n"3" = 12.4'),
    "a block of text": ('"3" = 12.3', '"3" = "12.3"'),
    "a size that is none": ('"color" = 24', '"color" = nan'),
    "another size": ('"color" = 24', '"color" = 23'),
    "noise that is none": ('"sd" = 0.0125', '"sd" = nan'),
    "infinite noise": ('"sd" = 0.0125', '"sd" = inf'),
    "noise below nothing": ('"sd" = 0.0125', '"sd" = -0.0125'),
    "a value's noise that is none": ('"value_sd" = 0.0031', '"value_sd" = nan'),
    "a value's noise below nothing": ('"value_sd" = 0.0031', '"value_sd" = -1.0'),
    "no effective units": ('"effective" = 18.5', '"effective" = 0.0'),
    "degrees of freedom that are none": ('"degrees" = 14.0', '"degrees" = nan'),
    "half a calibration": ('"units" = 24\n', ""),
    "more than a calibration": ('"units" = 24', '"units" = 24\n"looks" = 3'),
    "a set twice": ("$", '\n[scores."color"]\n"all" = 12.5\n'),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_to_what_format_2_added_is_refused(what: str) -> None:
    """A bound made from nonsense would let a checkpoint pass as well as a score would."""
    whole = dump_baseline(replace(accepted(SET), noise=NOISE))
    pattern, replacement = DAMAGE[what]
    text = re.sub(pattern, lambda _: replacement, whole, count=1)
    assert text != whole
    with pytest.raises(BaselineError, match=r"baseline set\.toml .*restore it from version"):
        load_baseline(text, KEY, "set.toml")


def test_the_record_of_a_measurement_is_what_its_file_gives() -> None:
    """Reports carry the one, folders the other: accepting from either must be the same."""
    record = record_of(SET)
    assert record == accepted(SET)
    assert (record.case, record.metric, record.value, record.n) == (str(KEY), "GC@3", 12.5, 24)
    assert record.blocks["color"]["11"] == 13.1
