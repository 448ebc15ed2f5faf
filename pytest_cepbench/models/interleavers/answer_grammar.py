"""Which tokens may follow in an answer that is one sequence of words and image tokens.

An answer is words, then an image, then words, and so on to its end. An image is a grid of codes of
one size, every row and the whole closed by tokens of their own. A model that was trained on such
sequences can still leave a row short, or never end; decoders take whole grids only. So each answer
has an automaton that says what may come next, and takes one step per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pytest_cepbench.models.protocols import StepLimit


@dataclass(frozen=True)
class ImageLayout:
    """The tokens of an image in a sequence.

    start: begins it.
    header: follow `start`, the same for every image.
    height, width: of the grid of codes.
    end_of_row: after each row.
    footer: after the last row.
    """

    start: int
    header: tuple[int, ...]
    height: int
    width: int
    end_of_row: int
    footer: tuple[int, ...]

    @cached_property
    def tokens(self) -> tuple[int | None, ...]:
        """What follows `start`, to the end of the image; None for a code."""
        row = (*[None] * self.width, self.end_of_row)
        return (*self.header, *row * self.height, *self.footer)

    @cached_property
    def grid(self) -> range:
        """The places in `tokens` that are the grid, ends of rows included."""
        return range(len(self.header), len(self.tokens) - len(self.footer))


@dataclass(frozen=True)
class Allowed:
    """What may come next.

    kind: "code", any image token; "word", any word; "token", none of both.
    tokens: ids that may come as well; exactly one of them where it alone may come.
    """

    kind: Literal["code", "word", "token"]
    tokens: tuple[int, ...] = ()


@dataclass
class AnswerPiece:
    """A text or an image of an answer: the ids of its words, or of its grid with ends of rows."""

    kind: Literal["text", "image"]
    tokens: list[int]


class AnswerAutomaton:
    """The state of one answer.

    layout: of its images.
    end: the token that ends it.
    limit: where a number of steps was told, the answer has exactly so many images; else any number
        up to the most. The last image that it may have ends the answer.
    max_text: most words between two images; after them comes an image or the end.
    """

    def __init__(self, layout: ImageLayout, end: int, limit: StepLimit, max_text: int) -> None:
        self._layout = layout
        self._images_left = limit.most if limit.told is None else min(limit.told, limit.most)
        self._max_text = max_text
        self._words_left = max_text
        self._place: int | None = None  # of the next token in an image; None in a text
        self._end = Allowed("token", (end,))
        ways_on = (layout.start,) if limit.told is not None else (layout.start, end)
        self._in_text = Allowed("word", ways_on)
        self._after_text = Allowed("token", ways_on)
        self.ended = False
        self.pieces: list[AnswerPiece] = []

    @property
    def allowed(self) -> Allowed:
        """What may come next; after the end, the end again."""
        if self.ended or (self._place is None and self._images_left < 1):
            return self._end
        if self._place is None:
            return self._in_text if self._words_left > 0 else self._after_text
        token = self._layout.tokens[self._place]
        return _CODE if token is None else Allowed("token", (token,))

    def advance(self, token: int) -> None:
        """Take the token that came: one that was allowed."""
        if self.ended:
            return
        if self._place is not None:
            self._advance_in_image(token)
        elif (token,) == self._end.tokens:
            self.ended = True
        elif token == self._layout.start:
            self._place = 0
            self.pieces.append(AnswerPiece("image", []))
        else:
            self._words_left -= 1
            if not self.pieces or self.pieces[-1].kind == "image":
                self.pieces.append(AnswerPiece("text", []))
            self.pieces[-1].tokens.append(token)

    def _advance_in_image(self, token: int) -> None:
        assert self._place is not None
        if self._place in self._layout.grid:
            self.pieces[-1].tokens.append(token)
        self._place += 1
        if self._place == len(self._layout.tokens):
            self._place = None
            self._images_left -= 1
            self._words_left = self._max_text


_CODE = Allowed("code")


def longest_answer(layout: ImageLayout, most: int, max_text: int) -> int:
    """The most tokens that an answer of so many images has, its end included."""
    return most * (max_text + 1 + len(layout.tokens)) + 1
