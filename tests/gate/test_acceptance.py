"""Accepting: which files change, what stays in them, and what becomes of the anchor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_cepbench.gate import Measurement, Noise, dump_baseline, load_baseline
from pytest_cepbench.gate.acceptance import BaselineChange, apply, propose
from pytest_cepbench.gate.baseline import anchor_path, baseline_path
from tests.gate.build import KEY, accepted, measured
from tests.optional import known
from tests.plugin.project import contents

NOISE = Noise(seeds=3, units=24, sd=0.0125, value_sd=0.0031)


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


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": {"color": {"a.png": 0.51, "b.png": 0.750001}}},
        {"model": {"spec": "step-2"}},
        {"failures": {"empty-text": 1}},
        {"clusters": {"a.png": "x"}},
        {"shares": True},
        {"higher_is_better": False},
        {"label": "GC@4"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_field_that_a_reviewer_sees_is_a_change(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """One score by a millionth, the model, the failures: the file says something else."""
    fields: dict[str, Any] = {
        "scores": {"color": {"a.png": 0.51, "b.png": 0.75}},
        "model": {"spec": "step-1"},
    }
    _accept(tmp_path, accepted(measured(**fields)))
    change = known(propose(KEY, accepted(measured(**(fields | changes))), tmp_path))
    assert change.before != change.after


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
