"""Texts that are longer than a model reads: cut for it, and said so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence


class TruncationNotice:
    """Warns once per loaded model that texts were cut; a drift of captions into length shows here."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._given = False

    def check(self, lengths: Sequence[int], longest: int) -> None:
        """Say it where a text has more tokens than are read; lengths, longest: of `text_lengths`."""
        count = sum(length > longest for length in lengths)
        if count and not self._given:
            self._given = True
            msg = (
                f"{self._what} reads {longest} tokens: {count} longer text(s) of this batch were cut "
                "for it (said once)"
            )
            warnings.warn(msg, stacklevel=3)
