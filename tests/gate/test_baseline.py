"""Baseline files: the same text for the same measurement, and no nonsense read back from them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate import CaseKey, load_baseline
from tests.gate.build import KEY, NAMES, SCORES, Scores, accepted, measured, text_of

TEXT = text_of(measured(model={"spec": "shapes:"}))


@given(
    scores=SCORES,
    part=NAMES,
    label=NAMES,
    identity=st.dictionaries(NAMES, NAMES, max_size=3),
    model=st.dictionaries(NAMES, NAMES, max_size=3),
    failures=st.dictionaries(NAMES, st.integers(0, 99), max_size=3),
    higher=st.booleans(),
)
def test_every_measurement_comes_back(
    scores: Scores,
    part: str,
    label: str,
    identity: dict[str, str],
    model: dict[str, str],
    failures: dict[str, int],
    higher: bool,
) -> None:
    """Ids and values of any text, every score, every count: read back as they were measured."""
    measurement = measured(
        scores,
        key=CaseKey("shapes", part, "gc"),
        label=label,
        identity=identity,
        model=model,
        failures=failures,
        higher_is_better=higher,
    )
    baseline = accepted(measurement)
    assert baseline.scores == measurement.scores
    assert (baseline.value, baseline.n) == (measurement.value, measurement.n)
    assert (baseline.case, baseline.metric) == (str(measurement.key), label)
    assert (baseline.identity, baseline.model, baseline.failures) == (identity, model, failures)
    assert baseline.higher_is_better is higher


def test_a_path_that_is_no_unicode_can_be_written() -> None:
    """A checkpoint in a folder with such a name can be accepted; the file has bytes' escapes."""
    text = text_of(measured(model={"spec": "/data/\udcff/x"}))
    text.encode("utf-8")
    assert load_baseline(text, KEY, "x").model == {"spec": r"/data/\udcff/x"}


@given(SCORES, st.randoms())
def test_the_same_measurement_gives_the_same_bytes(scores: Scores, random: object) -> None:
    """Accepting again what was accepted leaves no diff, in whatever order samples were measured."""

    def shuffled(table: object) -> dict[str, object]:
        items = list(table.items())  # type: ignore[attr-defined] # a dict
        random.shuffle(items)  # type: ignore[attr-defined] # a random.Random
        return dict(items)

    other = shuffled({category: shuffled(part) for category, part in scores.items()})
    failures = {"empty-text": 1, "exception": 2}
    assert text_of(measured(scores, failures=failures)) == text_of(
        # scores, shuffled
        measured(other, failures=dict(reversed(failures.items())))  # type: ignore[arg-type]
    )


def test_the_text_is_made_for_reviewers() -> None:
    """One fact a line; minus zero is zero; tiny numbers are still numbers."""
    scores = {"color": {"b": -1e-9, "a": 2e-6}}
    text = text_of(measured(scores, model={"spec": "shapes:"}, failures={"exception": 1}))
    assert text == (
        "# Accepted baseline of one case, written by pytest-cepbench. Review it as a diff.\n"
        'format = 2\ncase = "shapes/color/gc"\nmetric = "GC@3"\nvalue = 1e-06\nn = 2\n'
        'higher_is_better = true\n\n[model]\n"spec" = "shapes:"\n\n'
        '[identity]\n"suite" = "shapes/1"\n'
        '"samples" = "2 0123456789abcdef"\n\n[failures]\n"exception" = 1\n\n[scores."color"]\n'
        '"a" = 2e-06\n"b" = 0.0\n'
    )


NONSENSE = {
    "empty": ("(?s).*", ""),
    "not TOML": ("format = 2", "format: 2"),
    "a merge conflict": ("n = 2", "<<<<<<< HEAD\nn = 2\n=======\nn = 3\n>>>>>>> main"),
    "half a file": (r"(?s)\[identity\].*", '[identity]\n"suite" = "sha'),
    "JSON": ("(?s).*", '{"value": 0.625}'),
    "a field missing": ("n = 2\n", ""),
    "a table missing": (r"(?s)\[model\]\n.*?\n\n", ""),
    "no scores": (r"(?s)\[scores.*", ""),
    "empty scores": (r"(?s)\[scores.*", "[scores]\n"),
    "an empty category": ("$", '\n[scores."shape"]\n'),
    "an unknown field": ("n = 2", "n = 2\ntolerance = 1.0"),
    "a key twice": ('"a.png" = 0.5', '"a.png" = 0.5\n"a.png" = 0.5'),
    "a text for a number": ("value = 0.625", 'value = "0.625"'),
    "a text for a truth": ("= true", '= "yes"'),
    "a list for a score": ('"a.png" = 0.5', '"a.png" = [0.5]'),
    "a number for a text": ('"spec" = "shapes:"', '"spec" = 1'),
    "a wrong value": ("value = 0.625", "value = 0.6"),
    "a value that is none": ("value = 0.625", "value = nan"),
    "an infinite value": ("value = 0.625", "value = -inf"),
    "a lowered score": ('"a.png" = 0.5', '"a.png" = 0.1'),
    "a score that is none": ('"a.png" = 0.5', '"a.png" = nan'),
    "an infinite score": ('"a.png" = 0.5', '"a.png" = inf'),
    "scores beyond adding up": ('= 0.5\n"b.png" = 0.75', '= 1e308\n"b.png" = 1e308'),
    "a wrong n": ("n = 2", "n = 3"),
    "a fractional n": ("n = 2", "n = 2.5"),
    "a sample deleted": ('"b.png" = 0.75\n', ""),
    "another case": ("shapes/color/gc", "shapes/shape/gc"),
    "a format that never was": ("format = 2", "format = 0"),
    "a negative format": ("format = 2", "format = -1"),
    "a text for a format": ("format = 2", 'format = "2"'),
    "a truth for a format": ("format = 2", "format = true"),
    "no format": ("format = 2\n", ""),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_refused(what: str) -> None:
    """A file edited by hand into nonsense never gives a baseline: file and remedy are named."""
    pattern, replacement = NONSENSE[what]
    text = re.sub(pattern, lambda _: replacement, TEXT, count=1)
    assert text != TEXT
    with pytest.raises(BaselineError) as caught:
        load_baseline(text, KEY, "baselines/shapes/color.toml")
    message = str(caught.value)
    assert message.startswith("baseline baselines/shapes/color.toml ")
    assert message.endswith(
        "restore it from version control, or accept a new one with --snapshot-update"
    )
