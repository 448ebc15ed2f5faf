"""Accepting measurements: which baselines change and how, and what becomes of the anchors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from pytest_cepbench.errors import WriteError
from pytest_cepbench.files import MOST_TEXT, read_regular
from pytest_cepbench.gate.baseline import anchor_path, baseline_path, dump_baseline, usable_baseline
from pytest_cepbench.gate.measurement import CaseKey, Measurement
from pytest_cepbench.replacement import replace_files

AnchorStep = Literal["none", "kept", "frozen", "moved"]
"""Change of the anchor: there is none yet; it stays; what was accepted first becomes it; it
moves to what is accepted now."""


@dataclass(frozen=True)
class BaselineChange:
    """A baseline before and after.

    before: None for a new case, and for a file that could not be used.
    anchor: what becomes of it.
    """

    key: CaseKey
    before: Measurement | None
    after: Measurement
    anchor: AnchorStep

    @property
    def text(self) -> str:
        """The new file."""
        return dump_baseline(self.after)

    @property
    def replaced_answers(self) -> int | None:
        """Answers that others take the place of; None where there are none to be battled."""
        if not self.after.answers:
            return None
        before = {} if self.before is None else self.before.answers
        return sum(before.get(name) != digest for name, digest in self.after.answers.items())


def propose(
    key: CaseKey, after: Measurement, root: Path, *, move_anchor: bool = False
) -> BaselineChange | None:
    """Change below the baseline folder by accepting a measurement; None where nothing would change.

    The first baseline of a case is its anchor until a second one is accepted: then it is frozen. An
    anchor of something else (other samples, prompts, encoders), or one that cannot be read, can be
    compared with nothing any more, and moves. A calibration stays for as long as what is measured
    is the same.
    """
    before = usable_baseline(baseline_path(root, key), key)
    unchanged = before is not None and _same(before, after)
    comparable = before is not None and before.identity == after.identity
    # A floor that only now is kept is no step away from what was accepted.
    stays = before is not None and _same(replace(before, floor=after.floor), after)
    path = anchor_path(root, key)
    known = usable_baseline(path, key)
    anchor: AnchorStep
    if known is not None and known.identity == after.identity and not move_anchor:
        anchor = "kept"
    elif comparable and not stays and not move_anchor:  # what was there before can be the anchor
        anchor = "frozen"
    else:
        anchor = "moved" if os.path.lexists(path) else "none"
    if unchanged and anchor in ("none", "kept"):
        return None
    if before is not None and comparable and after.noise is None:
        after = replace(after, noise=before.noise)
    return BaselineChange(key, before, after, anchor)


def _same(before: Measurement, after: Measurement) -> bool:
    """True where a file would hold the same, format, calibration and reason aside."""
    first, second = (
        replace(baseline, noise=None, accepted={}, format=0) for baseline in (before, after)
    )
    return first == second


def apply(changes: Iterable[BaselineChange], root: Path) -> list[Path]:
    """Write the changed files, all or none; returns where the baselines are.

    Raises WriteError, and then nothing is changed.
    """
    contents: dict[Path, bytes | None] = {}
    written = []
    for change in changes:
        target, anchor = baseline_path(root, change.key), anchor_path(root, change.key)
        if change.anchor == "frozen":
            try:
                contents[anchor] = read_regular(target, MOST_TEXT)
            except OSError as error:
                raise WriteError(
                    f"{target} cannot be read any more: {error.strerror}; nothing was changed"
                ) from error
        elif change.anchor == "moved":
            contents[anchor] = change.text.encode()
        contents[target] = change.text.encode()
        written.append(target)
    replace_files(root, contents)
    return written
