"""What reports hold of collapse and of texts that drift, as built-in types."""

from __future__ import annotations

import msgspec

OTHER_WORDS = "(other words)"
"""Stands for all words of a flow that are not named; no word of a text has parentheses."""


class LinkShown(msgspec.Struct, frozen=True):
    """One artifact of a chain: its text, or the digest of its image in the store.

    similarity: to the start, where it was measured.
    """

    text: str | None = None
    image: str | None = None
    similarity: float | None = None


class EndShown(msgspec.Struct, frozen=True):
    """A chain that ended in an attractor: its sample, its start and its end."""

    sample: str
    start: LinkShown
    end: LinkShown


class AttractorShown(msgspec.Struct, frozen=True):
    """Ends of different starts that have become alike.

    chains: that ended in it.
    share: of all chains that have an end.
    origins: number of clusters, by the same radius, that their starts lie in.
    center: the end that is most like all of them.
    examples: some of its chains, at most twelve.
    """

    chains: int
    share: float
    origins: int
    center: LinkShown
    examples: list[EndShown] = []


class TextStepShown(msgspec.Struct, frozen=True):
    """The texts of a generation, and how their words differ from those of the text before.

    generation: 0 for the start.
    since: generation of the text before; None where there is none.
    roles: whose steps lie between the two, joined by ", "; empty for the start.
    texts: how many chains have both; how many have it where there is none before.
    words: mean number.
    kept, changed, lost, gained: words of all texts together.
    kinds: kind of fact -> the same four numbers of its words.
    repeated: mean share of repeated n-grams.
    scripts: share of letters by script, the most frequent first.
    refusals: texts that begin as refusals do.
    languages: share of texts by language, the most frequent first; empty where no identifier is
    installed.
    """

    generation: int
    since: int | None
    roles: str
    texts: int
    words: float
    kept: int = 0
    changed: int = 0
    lost: int = 0
    gained: int = 0
    kinds: dict[str, list[int]] = {}
    repeated: float = 0.0
    scripts: dict[str, float] = {}
    refusals: int = 0
    languages: dict[str, float] = {}


class WordFlowShown(msgspec.Struct, frozen=True):
    """What became of a word between the first and the last text.

    before, after: the word; empty where there was none, so that it was gained or lost.
    count: of occurrences, in all chains.
    """

    before: str
    after: str
    count: int


class TextDriftShown(msgspec.Struct, frozen=True):
    """What drifts in the texts of a case's chains.

    start: of the chains.
    steps: one for each generation that is a text.
    first, last: generations of the texts that the flows join.
    chains: that have both.
    flows: the words that change most, every other one as `OTHER_WORDS`.
    """

    start: str
    steps: list[TextStepShown]
    first: int = 0
    last: int = 0
    chains: int = 0
    flows: list[WordFlowShown] = []
