"""Accepting: which files change, what stays in them, and what becomes of the anchor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_cepbench.gate import CaseKey, Measurement, Noise, dump_baseline, load_baseline
from pytest_cepbench.gate.acceptance import BaselineChange, apply, propose
from pytest_cepbench.gate.baseline import anchor_path, baseline_path
from tests.gate.build import KEY, accepted, measured
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
    assert contents(root) == {
        f"shapes/{KEY.file_stem}.toml": dump_baseline(_model(1)).encode(),
    }


def test_an_anchor_is_moved_on_request(tmp_path: Path) -> None:
    """Also where the baseline itself stays: then the anchor is what changes."""
    for k in (1, 2, 3):
        _accept(tmp_path, _model(k))
    change = _accept(tmp_path, _model(3), move_anchor=True)
    assert change is not None
    assert change.anchor == "moved"
    assert _lies(anchor_path(tmp_path, KEY)) == _lies(baseline_path(tmp_path, KEY)) == _model(3)
    change = _accept(tmp_path, _model(4), move_anchor=True)
    assert change is not None
    assert _lies(anchor_path(tmp_path, KEY)) == _model(4)


def test_without_an_anchor_there_is_none_to_move(tmp_path: Path) -> None:
    """A request to start again from here freezes nothing of what was before."""
    _accept(tmp_path, _model(1))
    change = _accept(tmp_path, _model(2), move_anchor=True)
    assert change is not None
    assert change.anchor == "none"
    assert not anchor_path(tmp_path, KEY).exists()
    change = _accept(tmp_path, _model(3))
    assert change is not None
    assert change.anchor == "frozen"
    assert _lies(anchor_path(tmp_path, KEY)) == _model(2)


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
    change = propose(KEY, accepted(measured(**(fields | changes))), tmp_path)
    assert change is not None
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
def test_an_anchor_that_cannot_be_read_is_replaced(tmp_path: Path, k: int) -> None:
    """By the baseline before it, also where that one stays: accepting is the remedy named."""
    _accept(tmp_path, _model(1))
    anchor = anchor_path(tmp_path, KEY)
    anchor.parent.mkdir(parents=True)
    anchor.write_text("<<<<<<< HEAD\n")
    change = _accept(tmp_path, _model(k))
    assert change is not None
    assert _lies(anchor) == _model(1)
    assert _lies(baseline_path(tmp_path, KEY)) == _model(k)


def test_an_anchor_of_something_else_moves_where_the_baseline_stays(tmp_path: Path) -> None:
    """As a merge can leave it: the case is incomparable, and accepting is the remedy named."""
    _accept(tmp_path, _model(1))
    anchor = anchor_path(tmp_path, KEY)
    anchor.parent.mkdir(parents=True)
    anchor.write_text(dump_baseline(_model(0, identity={"suite": "shapes/0"})), encoding="utf-8")
    change = _accept(tmp_path, _model(1))
    assert change is not None
    assert change.anchor == "moved"
    assert _lies(anchor) == _lies(baseline_path(tmp_path, KEY)) == _model(1)


def test_many_cases_are_written_each_at_once(tmp_path: Path) -> None:
    """In the order given; no half-written file is left beside them, and others stay."""
    keys = [CaseKey("shapes", part, "gc") for part in ("color", "a/b", "color ")]
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "mine.toml").write_text("untouched")
    changes = [propose(key, replace(_model(1), case=str(key)), tmp_path) for key in keys]
    written = apply([change for change in changes if change], tmp_path)
    assert written == [baseline_path(tmp_path, key) for key in keys]
    assert set(contents(tmp_path)) == {
        "shapes/mine.toml", *(f"shapes/{key.file_stem}.toml" for key in keys)
    }  # fmt: skip
