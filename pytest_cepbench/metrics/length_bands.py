"""The length study: three bands of description length and how models kept to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt


@dataclass(frozen=True)
class LengthBand:
    """A range of word counts that a describer is asked to stay in.

    name: its name in tables.
    constraint: the part of the prompt that asks for it.
    at_least, at_most: the word counts that keep it, both ends included; None is no limit.
    """

    name: str
    constraint: str
    at_least: int = 0
    at_most: int | None = None

    def holds(self, words: int) -> bool:
        """True where a description of so many words is inside the band."""
        return self.at_least <= words and (self.at_most is None or words <= self.at_most)


LENGTH_BANDS = (
    LengthBand("<20", "it should be fewer than 20 words", at_most=19),
    LengthBand("20-60", "it should be between 20 to 60 words", at_least=20, at_most=60),
    LengthBand(">60", "it should be more than 60 words", at_least=61),
)
"""The bands of MMGenBench, C.8. The middle one is its default and worded as in its Figure 16; the
paper does not print the wording of the others, which are worded alike."""


@dataclass(frozen=True)
class WordStatistics:
    """Statistics of the lengths of descriptions.

    n: descriptions.
    mean, std: of their word counts; None of no description, and no std of one.
    within: share of descriptions inside the band they were asked for, in [0, 1]; None where there
    is none or no band was given.
    """

    n: int
    mean: float | None
    std: float | None
    within: float | None


def count_words(text: str) -> int:
    """Words of a text: what is left between white space.

    A text in a script without spaces counts as one word. MMGenBench does not say how it counts;
    its released code cuts captions at spaces.
    """
    return len(text.split())


def word_statistics(texts: Sequence[str], band: LengthBand | None = None) -> WordStatistics:
    """Mean and standard deviation of the word counts, and the share inside the band.

    std is that of a sample (divided by n - 1). The captions behind MMGenBench's Table 4 are not
    published, so neither it nor the deviation of a population can be shown to be the paper's;
    its Table 14, which can be checked, has that of a sample.
    Source: MMGenBench, C.8 and Table 4, which gives no share.
    """
    counts = [count_words(text) for text in texts]
    n = len(counts)
    if n == 0:
        return WordStatistics(0, None, None, None)
    mean = fsum(counts) / n
    std = sqrt(fsum((count - mean) ** 2 for count in counts) / (n - 1)) if n > 1 else None
    within = sum(map(band.holds, counts)) / n if band else None
    return WordStatistics(n, mean, std, within)
