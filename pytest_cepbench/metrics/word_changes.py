"""Which words texts lose, gain and change from one generation of a chain to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from pytest_cepbench.metrics.text_statistics import words_of

_LONGEST = 400
"""Words of a text that are aligned: beyond, the time of an alignment grows without use."""

_ENGLISH = {
    "color": """red green blue yellow purple cyan orange pink brown black white gray grey magenta
        violet beige gold golden silver turquoise""",
    "count": """no none one two three four five six seven eight nine ten eleven twelve single
        several many few pair dozen 0 1 2 3 4 5 6 7 8 9 10 11 12""",
    "size": "small large big tiny huge little tall short long wide narrow",
    "place": """top middle bottom left right center centre above below under over behind front
        inside outside beside near between next upper lower corner background foreground""",
}

WORD_KINDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(words.split()) for kind, words in _ENGLISH.items()
}
"""Kind of fact -> the English words that tell it. All other words are of the kind "other"."""


@dataclass
class WordChanges:
    """Counts over pairs of texts, an earlier and a later one.

    texts: pairs.
    before, after: word -> its occurrences in the earlier and in the later texts.
    kept: word -> occurrences that stayed in their place among the others.
    changed: (before, after) -> occurrences of a word that another stands in place of.
    lost, gained: word -> occurrences that nothing stands in place of.
    """

    texts: int = 0
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    gained: Counter[str] = field(default_factory=Counter)

    def add(self, before: str, after: str) -> None:
        """Count one pair.

        The words are aligned by their longest common runs (Ratcliff and Obershelp). Where runs of
        equal length face each other, word by word is a change; of others the words of the earlier
        are lost and those of the later gained. So kept + changed + lost are the earlier words,
        kept + changed + gained the later ones. Of each text the first 400 words count.
        """
        old, new = words_of(before)[:_LONGEST], words_of(after)[:_LONGEST]
        self.texts += 1
        self.before.update(old)
        self.after.update(new)
        for tag, low, high, start, end in SequenceMatcher(
            None, old, new, autojunk=False
        ).get_opcodes():
            if tag == "equal":
                self.kept.update(old[low:high])
            elif high - low == end - start:
                self.changed.update(zip(old[low:high], new[start:end], strict=True))
            else:
                self.lost.update(old[low:high])
                self.gained.update(new[start:end])

    def by_kind(self) -> dict[str, KindChanges]:
        """The same by kind of fact, kinds without a word left out; "other" last."""
        totals = {kind: KindChanges() for kind in (*WORD_KINDS, "other")}
        for word, count in self.kept.items():
            totals[kind_of(word)].kept += count
        for (word, _), count in self.changed.items():
            totals[kind_of(word)].changed += count
        for word, count in self.lost.items():
            totals[kind_of(word)].lost += count
        for word, count in self.gained.items():
            totals[kind_of(word)].gained += count
        return {kind: total for kind, total in totals.items() if total.any}


@dataclass
class KindChanges:
    """Occurrences of the words of one kind: kept, changed, lost, gained."""

    kept: int = 0
    changed: int = 0
    lost: int = 0
    gained: int = 0

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self.kept or self.changed or self.lost or self.gained)


def word_changes(pairs: Iterable[tuple[str, str]]) -> WordChanges:
    """The changes over pairs of an earlier and a later text."""
    changes = WordChanges()
    for before, after in pairs:
        changes.add(before, after)
    return changes


def kind_of(word: str) -> str:
    """The kind of fact that a word tells; "other" where none is known."""
    return next((kind for kind, words in WORD_KINDS.items() if word in words), "other")
