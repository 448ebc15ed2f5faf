"""Baseline files: the same text for the same measurement, no nonsense read back, acceptance."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate import CaseKey, Measurement, Noise, dump_baseline, load_baseline
from pytest_cepbench.gate.baseline import (
    BaselineChange,
    anchor_path,
    apply,
    baseline_path,
    propose,
)
from tests.gate.build import KEY, NAMES, SCORES, Scores, accepted, measured, text_of
from tests.optional import known
from tests.plugin.project import contents

TEXT = text_of(measured(model={"spec": "shapes:"}))


FINITE = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))

TEXTS = st.dictionaries(NAMES, NAMES, max_size=3)

FIELDS = st.fixed_dictionaries(
    {
        "label": NAMES,
        "identity": TEXTS,
        "model": TEXTS,
        "failures": st.dictionaries(NAMES, st.integers(0, 99), max_size=3),
        "higher_is_better": st.booleans(),
        "blocks": st.dictionaries(NAMES, st.dictionaries(NAMES, FINITE, max_size=4), max_size=3),
        "clusters": TEXTS,
        "sizes": st.dictionaries(NAMES, st.integers(1, 10**6), max_size=3),
        "shares": st.booleans(),
    }
)


@given(SCORES, NAMES, FIELDS)
def test_every_measurement_comes_back(scores: Scores, part: str, fields: dict[str, Any]) -> None:
    """Ids and values of any text, every score, every count: read back as they were measured."""
    measurement = measured(scores, key=CaseKey("shapes", part, "gc"), **fields)
    assert accepted(measurement) == measurement.record


@given(SCORES, st.integers(0, 99).map(Random))
def test_the_same_measurement_gives_the_same_bytes(scores: Scores, random: Random) -> None:
    """Accepting again what was accepted leaves no diff, in whatever order samples were measured."""

    def shuffled(table: Mapping[str, Any]) -> dict[str, Any]:
        return dict(random.sample(list(table.items()), len(table)))

    other = shuffled({category: shuffled(part) for category, part in scores.items()})
    failures = {"empty-text": 1, "exception": 2}
    assert text_of(measured(scores, failures=failures)) == text_of(
        measured(other, failures=dict(reversed(failures.items())))
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
    "a field missing": ("n = 2\n", ""),
    "a table missing": (r"(?s)\[model\]\n.*?\n\n", ""),
    "no scores": (r"(?s)\[scores.*", ""),
    "empty scores": (r"(?s)\[scores.*", "[scores]\n"),
    "an empty category": ("$", '\n[scores."shape"]\n'),
    "an unknown field": ("n = 2", "n = 2\ntolerance = 1.0"),
    "a wrong value": ("value = 0.625", "value = 0.6"),
    "a value that is none": ("value = 0.625", "value = nan"),
    "an infinite value": ("value = 0.625", "value = -inf"),
    "a lowered score": ('"a.png" = 0.5', '"a.png" = 0.1'),
    "a score that is none": ('"a.png" = 0.5', '"a.png" = nan'),
    "an infinite score": ('"a.png" = 0.5', '"a.png" = inf'),
    "scores beyond adding up": ('= 0.5\n"b.png" = 0.75', '= 1e308\n"b.png" = 1e308'),
    "a wrong n": ("n = 2", "n = 3"),
    "a sample deleted": ('"b.png" = 0.75\n', ""),
    "another case": ("shapes/color/gc", "shapes/shape/gc"),
    "a format that never was": ("format = 2", "format = 0"),
    "a text for a format": ("format = 2", 'format = "2"'),
    "no format": ("format = 2\n", ""),
}


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

SET = measured(
    {"color": {"all": 12.5}},
    higher_is_better=False,
    sizes={"color": 24},
    blocks={"color": {str(i): 12.0 + i / 10 for i in range(12)}},
)


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
}


@pytest.mark.parametrize(
    ("whole", "pattern", "replacement"),
    [
        *((TEXT, *change) for change in NONSENSE.values()),
        *((dump_baseline(replace(accepted(SET), noise=NOISE)), *own) for own in DAMAGE.values()),
    ],
    ids=[*NONSENSE, *DAMAGE],
)
def test_nonsense_is_refused(whole: str, pattern: str, replacement: str) -> None:
    """A file edited by hand into nonsense never gives a baseline: file and remedy are named. A
    bound made from nonsense would let a checkpoint pass as well as a score would.
    """
    text = re.sub(pattern, lambda _: replacement, whole, count=1)
    assert text != whole
    with pytest.raises(BaselineError) as caught:
        load_baseline(text, KEY, "baselines/shapes/color.toml")
    message = str(caught.value)
    assert message.startswith("baseline baselines/shapes/color.toml ")
    assert message.endswith(
        "restore it from version control, or accept a new one with --snapshot-update"
    )


FILE_NAME = re.compile(r"[a-z0-9-]{1,80}")


def test_file_names_never_collide() -> None:
    """Names that a careless slug makes equal, or that differ only in case: a file each."""
    alike = ["org/sdxl", "orgsdxl", "org sdxl", "org-sdxl", "ORG/SDXL", "org/SDXL", "org\\sdxl"]
    odd = ["org_sdxl", "猫", "犬", "é", "e\u0301", "", "..", "/", "con", "X" * 300]
    parts = [*alike, *odd, *("x" * length for length in (60, 300, 301))]
    keys = [CaseKey("suite", *names) for names in itertools.product(parts, ("gc", "s"))]
    stems = [key.file_stem for key in keys]
    assert len({stem.casefold() for stem in stems}) == len(keys)
    assert all(FILE_NAME.fullmatch(stem) for stem in stems)
    assert CaseKey("mmeception", "OCR", "gc").file_stem == "ocr-gc-27fe13e8f0"  # never changes
    # Whatever a category is called; suites and metrics have no slash in their names.
    assert [CaseKey.parse(str(key)) for key in keys] == keys


def test_scores_are_rounded_where_they_are_made() -> None:
    """What is judged is what a baseline file can hold, so that equal stays equal.

    A case without a finite score for each sample cannot exist, so it cannot pass.
    """
    measurement = measured({"color": {"a": 1 / 3, "b": 0.1 + 0.2, "c": 2 / 3}})
    assert measurement.scores == {"color": {"a": 0.333333, "b": 0.3, "c": 0.666667}}
    assert (measurement.value, measurement.n) == (0.433333, 3)
    x = {"x": 1.0}
    none: list[Scores] = [{"a": {}}, {"a": x, "b": {}}, {"a": {"x": nan}}, {"a": {"x": inf}}]
    for scores in none:
        with pytest.raises(ValueError, match=f"{KEY}: a measurement needs a finite score"):
            measured(scores)


# -- accepting: which files change, what stays in them, and what becomes of the anchor ------------


def _model(k: int, **changes: Any) -> Measurement:
    """What the k-th checkpoint scored."""
    scores = {"color": {"a.png": 0.5 + k / 100, "b.png": 0.75}}
    return accepted(measured(scores, model={"spec": f"step-{k}"}, **changes))


def _accept(root: Path, baseline: Measurement, **how: bool) -> BaselineChange | None:
    change = propose(KEY, baseline, root, **how)
    apply([change] if change else [], root)
    return change


def _lies(path: Path) -> Measurement:
    return load_baseline(path.read_text(encoding="utf-8"), KEY, path.name)


def test_a_new_case_has_a_file_and_no_anchor(tmp_path: Path) -> None:
    """There is nothing before it; the folders are made."""
    root = tmp_path / "not" / "there"
    change = propose(KEY, _model(1), root)
    assert change == BaselineChange(KEY, None, _model(1), "none")
    assert not root.exists()
    assert apply([change], root) == [baseline_path(root, KEY)]
    assert contents(root) == {f"shapes/{KEY.file_stem}.toml": dump_baseline(_model(1)).encode()}


def test_an_anchor_is_frozen_kept_or_moved_on_request(tmp_path: Path) -> None:
    """The first acceptance after the first freezes that one, byte for byte, unless a request starts
    again from there. It moves also where the baseline itself stays.
    """
    _accept(tmp_path, _model(1))
    first = baseline_path(tmp_path, KEY).read_bytes()
    steps = []
    for k, move in [(2, True), (3, False), (4, False), (4, True)]:
        frozen = baseline_path(tmp_path, KEY).read_bytes()
        change = known(_accept(tmp_path, _model(k), move_anchor=move))
        assert change.after == _model(k)
        steps.append(change.anchor)
        if change.anchor == "frozen":
            assert anchor_path(tmp_path, KEY).read_bytes() == frozen != first
    assert steps == ["none", "frozen", "kept", "moved"]
    assert _lies(anchor_path(tmp_path, KEY)) == _lies(baseline_path(tmp_path, KEY)) == _model(4)


def test_a_field_of_the_identity_that_only_now_is_kept(tmp_path: Path) -> None:
    """No step away from what was accepted, which is no anchor of it. An anchor without the field
    stays until what it tells changes.
    """

    def step(k: int, answers: str = "") -> str:
        references = {"references": answers} if answers else {}
        return known(_accept(tmp_path, _model(k, identity={"suite": "s/1", **references}))).anchor

    assert step(1) == step(1, "1 a") == "none"
    assert step(2, "1 a") == "frozen"
    path = anchor_path(tmp_path, KEY)
    before, field, after = path.read_text().partition('"references" = "1 a"\n')
    assert field
    path.write_text(before + after)
    assert [step(3, "1 a"), step(3, "1 b")] == ["kept", "moved"]


def test_what_has_not_changed_is_not_written(tmp_path: Path) -> None:
    """Not a byte, though reason, calibration and format of the file be others."""
    kept = replace(_model(1), noise=NOISE, accepted={"reason": "first"})
    text = dump_baseline(kept).replace("format = 2", "format = 1") + "# checked by hand\n"
    path = baseline_path(tmp_path, KEY)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    before = contents(tmp_path), path.stat().st_mtime_ns
    assert propose(KEY, replace(_model(1), accepted={"reason": "again"}), tmp_path) is None
    assert apply([], tmp_path) == []
    assert (contents(tmp_path), path.stat().st_mtime_ns) == before


def test_every_field_that_a_reviewer_sees_is_a_change(tmp_path: Path) -> None:
    """One score by a millionth, the model, the failures: the file says something else."""
    fields: dict[str, Any] = {
        "scores": {"color": {"a.png": 0.51, "b.png": 0.75}},
        "model": {"spec": "step-1"},
    }
    _accept(tmp_path, accepted(measured(**fields)))
    changes: list[dict[str, Any]] = [
        {"scores": {"color": {"a.png": 0.51, "b.png": 0.750001}}},
        {"model": {"spec": "step-2"}},
        {"failures": {"empty-text": 1}},
        {"clusters": {"a.png": "x"}},
        {"shares": True},
        {"higher_is_better": False},
        {"label": "GC@4"},
    ]
    for own in changes:
        change = known(propose(KEY, accepted(measured(**(fields | own))), tmp_path))
        assert change.before != change.after, own


def test_a_calibration_stays_while_the_same_is_measured(tmp_path: Path) -> None:
    """Noise belongs to samples, prompts and encoders; a new calibration goes before the old one."""
    _accept(tmp_path, replace(_model(1), noise=NOISE))
    _accept(tmp_path, _model(2))
    assert _lies(baseline_path(tmp_path, KEY)).noise == NOISE
    newer = replace(NOISE, sd=0.5)
    _accept(tmp_path, replace(_model(3), noise=newer))
    assert _lies(baseline_path(tmp_path, KEY)).noise == newer
    _accept(tmp_path, _model(4, identity={"suite": "shapes/2"}))
    assert _lies(baseline_path(tmp_path, KEY)).noise is None


@pytest.mark.parametrize("damage", [b"", b"<<<<<<< HEAD\n", b"\xff\xfe", b"format = 9\n"], ids=repr)
def test_a_baseline_that_cannot_be_read_is_replaced(tmp_path: Path, damage: bytes) -> None:
    """Accepting is the remedy that its error names; nothing of it becomes an anchor."""
    path = baseline_path(tmp_path, KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(damage)
    change = _accept(tmp_path, _model(1))
    assert change == BaselineChange(KEY, None, _model(1), "none")
    assert _lies(path) == _model(1)


@pytest.mark.parametrize("k", [1, 2])
def test_an_anchor_that_cannot_be_used_is_replaced(tmp_path: Path, k: int) -> None:
    """By the baseline before it, also where that one stays: accepting is the remedy named.

    It cannot be read, or, as a merge can leave it, is of something else.
    """
    other = dump_baseline(_model(0, identity={"suite": "shapes/0"}))
    for number, text in enumerate(["<<<<<<< HEAD\n", other]):
        root = tmp_path / str(number)
        _accept(root, _model(1))
        anchor = anchor_path(root, KEY)
        anchor.parent.mkdir(parents=True)
        anchor.write_text(text, encoding="utf-8")
        assert _accept(root, _model(k)) is not None
        assert _lies(anchor) == _model(1)
        assert _lies(baseline_path(root, KEY)) == _model(k)
