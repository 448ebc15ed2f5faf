"""Statistics of texts: words, repetition, length; no model, any language."""

from __future__ import annotations

import re
import unicodedata

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana and Han
    "\U00020000-\U0003ffff"
)
"""Letters of scripts that put no space between words."""

_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['\u2019-][^\W_{_UNSPACED}]+)*")

REPEATED = 4
"""n of repeated n-grams, as in the paper."""


def words_of(text: str) -> list[str]:
    """The words of a text, without case or punctuation, canonical forms of letters.

    A word is a run of letters and digits, with apostrophes and hyphens inside. Each letter of a
    script without spaces between words (Chinese, Japanese kana and Han, Thai, Lao, Burmese, Khmer)
    is a word of its own: no dictionary cuts them. Empty for a text without letters and digits.
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def repeated_share(text: str, n: int = REPEATED) -> float:
    """Share of a text's n-grams that were there before in it.

    n: at least 1.
    Returns 1 - different n-grams / n-grams, in [0, 1): 0 where none is repeated, and where the
    text has fewer than n words. There is no value by chance.
    Source: Welleck et al., Neural text generation with unlikelihood training, ICLR 2020, section
    6.1 (seq-rep-n, with n = 4).
    Raises ValueError for n below 1.
    """
    if n < 1:
        raise ValueError(f"expected n-grams of at least 1 word, got {n}")
    words = words_of(text)
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def kept_length(first: str, later: str) -> float:
    """How near the length of a later text is to that of the first, in words.

    Returns the shorter length over the longer, in [0, 1]: 1 for equal lengths, 0.5 for half as long
    and for twice as long. 0 where one of them has no words, 1 where both have none.
    """
    lengths = sorted((len(words_of(first)), len(words_of(later))))
    return 1.0 if lengths[0] == lengths[1] else lengths[0] / lengths[1]
