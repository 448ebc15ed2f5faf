"""Measurements and the names of their files."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import CaseKey
from tests.gate.build import KEY, measured

FILE_NAME = re.compile(r"[a-z0-9-]{1,80}")


def test_file_names_never_collide() -> None:
    """Names that a careless slug makes equal, or that differ only in case: a file each."""
    parts = [
        "org/sdxl",
        "orgsdxl",
        "org sdxl",
        "org-sdxl",
        "ORG/SDXL",
        "org/SDXL",
        "org\\sdxl",
        "org_sdxl",
    ]
    parts += [
        "x" * 300,
        "x" * 301,
        "X" * 300,
        "x" * 60,
        "猫",
        "犬",
        "é",
        "e\u0301",
        "",
        "..",
        "/",
        "con",
    ]
    keys = [
        CaseKey("suite", part, metric) for part, metric in itertools.product(parts, ("gc", "s"))
    ]
    stems = [key.file_stem for key in keys]
    assert len({stem.casefold() for stem in stems}) == len(keys)
    assert all(FILE_NAME.fullmatch(stem) for stem in stems)


@given(st.text(max_size=20), st.sampled_from(["gc", "s"]))
def test_a_key_is_read_from_its_text(part: str, metric: str) -> None:
    """Whatever a category is called; suites and metrics have no slash in their names."""
    key = CaseKey("suite", part, metric)
    assert CaseKey.parse(str(key)) == key


def test_a_file_name_never_changes() -> None:
    """Accepted baselines are found by it; and it tells a reader what is in the file."""
    assert CaseKey("mmeception", "OCR", "gc").file_stem == "ocr-gc-27fe13e8f0"


def test_scores_are_rounded_where_they_are_made() -> None:
    """What is judged is what a baseline file can hold, so that equal stays equal."""
    measurement = measured({"color": {"a": 1 / 3, "b": 0.1 + 0.2, "c": 2 / 3}})
    assert measurement.scores == {"color": {"a": 0.333333, "b": 0.3, "c": 0.666667}}
    assert (measurement.value, measurement.n) == (0.433333, 3)


@pytest.mark.parametrize(
    "scores",
    [{"a": {}}, {"a": {"x": 1.0}, "b": {}}, {"a": {"x": float("nan")}}, {"a": {"x": float("inf")}}],
)
def test_no_score_is_no_measurement(scores: dict[str, dict[str, float]]) -> None:
    """A case without a finite score for each sample cannot exist, so it cannot pass."""
    with pytest.raises(ValueError, match=f"{KEY}: a measurement needs a finite score"):
        measured(scores)


def test_a_score_of_a_set_stands_for_its_samples() -> None:
    """One score each, and all the images behind it are counted."""
    measurement = measured({"a": {"all": 2.0}, "b": {"all": 4.0}}, sizes={"a": 20, "b": 30})
    assert (measurement.value, measurement.n) == (3.0, 50)
