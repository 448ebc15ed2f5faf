"""Accepting measurements: which baselines change and how, and what becomes of the anchors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate.baseline import Baseline, dump_baseline, load_baseline
from pytest_cepbench.gate.measurement import CaseKey
from pytest_cepbench.gate.places import anchor_path, baseline_path

AnchorStep = Literal["none", "kept", "frozen", "moved", "again"]
"""What becomes of the anchor: there is none yet; it stays; what was accepted first becomes it; it
moves to what is accepted now; its model was measured again."""


@dataclass(frozen=True)
class Change:
    """A baseline before and after.

    before: None for a new case, and for a file that could not be used. anchor: what becomes of it.
    renewed: the anchor, where its model was measured again.
    """

    key: CaseKey
    before: Baseline | None
    after: Baseline
    anchor: AnchorStep
    renewed: Baseline | None = None

    @property
    def text(self) -> str:
        """The new file."""
        return dump_baseline(self.after)


def propose(
    key: CaseKey, after: Baseline, root: Path, *, move_anchor: bool = False
) -> Change | None:
    """What accepting a measurement changes below the baseline folder; None where nothing would.

    The first baseline of a case is its anchor until a second one is accepted: then it is frozen. An
    anchor of something else (other samples, prompts, encoders), or one that cannot be read, can be
    compared with nothing any more, and moves. A calibration stays for as long as what is measured is the same.
    """
    before = readable(baseline_path(root, key), key)
    unchanged = before is not None and _same(before, after)
    comparable = before is not None and before.identity == after.identity
    # A floor that only now is kept is no step away from what was accepted.
    stays = before is not None and _same(replace(before, floor=after.floor), after)
    anchor = _anchor_step(key, after, root, move=move_anchor, freeze=comparable and not stays)
    if unchanged and anchor in ("none", "kept"):
        return None
    if before is not None and comparable and after.noise is None:
        after = replace(after, noise=before.noise)
    return Change(key, before, after, anchor)


def _same(before: Baseline, after: Baseline) -> bool:
    """Whether a file would say the same again, format, calibration and reason aside."""
    first, second = (replace(one, noise=None, accepted={}, format=0) for one in (before, after))
    return first == second


def _anchor_step(
    key: CaseKey, after: Baseline, root: Path, *, move: bool, freeze: bool
) -> AnchorStep:
    """move: whether that was asked for. freeze: whether what was there before can be the anchor."""
    place = anchor_path(root, key)
    anchor = readable(place, key)
    if anchor is not None and anchor.identity == after.identity and not move:
        return "kept"
    if freeze and not move:
        return "frozen"
    return "moved" if place.exists() else "none"


def readable(path: Path, key: CaseKey) -> Baseline | None:
    """What a file holds; None where there is none, or nothing that could be compared."""
    try:
        return load_baseline(path.read_text(encoding="utf-8"), key, path.name)
    except (OSError, UnicodeDecodeError, BaselineError):
        return None


def apply(changes: Iterable[Change], root: Path) -> list[Path]:
    """Write the changed files, each at once; returns where the baselines are."""
    written = []
    for change in changes:
        target, anchor = baseline_path(root, change.key), anchor_path(root, change.key)
        if change.anchor == "frozen":
            _write(anchor, target.read_text(encoding="utf-8"))
        elif change.anchor == "moved":
            _write(anchor, change.text)
        elif change.renewed is not None:
            _write(anchor, dump_baseline(change.renewed))
        _write(target, change.text)
        written.append(target)
    return written


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(target)
