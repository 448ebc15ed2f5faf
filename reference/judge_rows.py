"""Rows of tokens that the judge is taught with: what it reads, and what is known at each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from battles import Answered, Battle, Question, question_of
from lessons import Lesson
from qwen import (
    IMAGE_PAD,
    OBJECTS,
    PROMPT_OF_JUDGE,
    START,
    STOP,
    VERDICTS,
    build_tokenizer,
    see_image,
)
from world import LOOKS, PROMPT, IntArray

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption, parse_image, render
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, GRID, SHAPES, SIZES, phrase

IGNORED = -100

CELL_KINDS = (1 + len(SHAPES), 1 + len(COLORS), 1 + len(SIZES), CELLS)
"""How many answers each column of `Rows.cells` has; 0 of the first three is "nothing here"."""

STEP_FIGURES = 3
"""Of each step: F1 of its text, of its image, and of one to the other."""


class Rows(NamedTuple):
    """Rows of tokens, and what is known of them; tensors, padded on the right.

    ids, mask: (n, length) tokens, and 1 where there is one.
    places: (3, n, length) positions in time, height and width.
    slots: (n, length) which token of which image stands there, 9 to each; -1 for words.
    patches: (images, 36, 384) images as `see_image` has them.
    looks: (images, 9, 4) what each cell shows, in the columns of `CELL_KINDS`.
    words: (n, length) the token to be written at each place; `IGNORED` where any will do.
    due: (n, length, 3) shape, color and size that should be in the cell of an object that is told,
        and in each cell of an answer's image; 0 for nothing; `IGNORED` elsewhere.
    right: (n, length) 1 where an object, told or shown, is the right one, 0 where it is not.
    steps: (m, 2) row and place of the last token of each step whose truth is known.
    figures: (m, 3) of each; see `STEP_FIGURES`.
    parts: (n, length) number of the step that a token belongs to, from 1; 0 for others.
    ends: (n, 2) places of the last token of either answer.
    truths: (n, 2, 8) the truth of both, total first; nan where it is not known.
    verdicts: (n,) token of the verdict, which follows the row; `IGNORED` where there is none.
    places_of_verdict: (n,) the last place of each row.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    places: torch.Tensor
    slots: torch.Tensor
    patches: torch.Tensor
    looks: torch.Tensor
    words: torch.Tensor
    due: torch.Tensor
    right: torch.Tensor
    steps: torch.Tensor
    figures: torch.Tensor
    parts: torch.Tensor
    ends: torch.Tensor
    truths: torch.Tensor
    verdicts: torch.Tensor
    places_of_verdict: torch.Tensor


@dataclass
class _Row:
    """A row as it grows."""

    ids: list[int] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    words: dict[int, int] = field(default_factory=dict)
    due: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    right: dict[int, int] = field(default_factory=dict)
    parts: dict[int, int] = field(default_factory=dict)
    steps: list[tuple[int, tuple[float, float, float]]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    next_place: int = 0


class RowBuilder:
    """Makes rows of battles and of lessons; holds the tokenizer."""

    def __init__(self) -> None:
        self.tokenizer = build_tokenizer()
        single = self.tokenizer.convert_tokens_to_ids
        self._start, self._pad, self._stop = single([START, IMAGE_PAD, STOP])
        cells = [number // len(LOOKS) for number in range(len(OBJECTS))]
        self._objects = dict(
            zip(single(list(OBJECTS)), zip(OBJECTS, cells, strict=True), strict=True)
        )
        self._verdicts: list[int] = single(list(VERDICTS))
        self._end = self.tokenizer.eos_token_id
        self._known: dict[str, list[int]] = {}

    def of_battles(self, battles: Sequence[Battle]) -> Rows:
        """Each battle in both orders, one row after the other."""
        rows, verdicts, truths = [], [], []
        album = _Album()
        for battle in battles:
            shown = [album.add(piece) for piece in battle.question]
            sides = [(side, album.add_steps(side)) for side in (battle.first, battle.second)]
            for mirrored in (False, True):
                ordered = sides[::-1] if mirrored else sides
                rows.append(self._battle(shown, ordered))
                verdicts.append(self._verdicts[3 - battle.place if mirrored else battle.place])
                truths.append([_truth_row(side) for side, _ in ordered])
        return _pack(rows, album, verdicts, truths)

    def of_answers(self, answers: Sequence[tuple[Question, Answered]]) -> Rows:
        """Single answers to questions, as the first of a battle: to be marked, not compared."""
        rows, truths = [], []
        album = _Album()
        for question, answer in answers:
            shown = [album.add(piece) for piece in question]
            row = self._asked(shown)
            self._say(row, PROMPT_OF_JUDGE.headings[1])
            self._answer(row, answer, album.add_steps(answer))
            row.ends = [len(row.ids) - 1] * 2
            rows.append(row)
            truths.append([_truth_row(answer), _UNKNOWN])
        return _pack(rows, album, [IGNORED] * len(rows), truths)

    def of_solutions(
        self, lessons: Sequence[Lesson], rng: np.random.Generator, single: Sequence[Scene]
    ) -> Rows:
        """Lessons with their right answers, and single scenes with their captions, to be written.

        Half of the lessons show the answer twice: the second time it has only to be found.
        """
        rows, album = [], _Album()
        for lesson in lessons:
            jitter, own = (int(rng.integers(0, 2**63)) for _ in range(2))
            shown = [album.add(piece) for piece in question_of(lesson, jitter)]
            drawn = [(caption(scene), render(scene, own)) for scene in lesson.answer]
            answer = Answered(tuple(drawn))
            numbers = album.add_steps(answer)
            rows.append(self._solution(shown, answer, numbers, twice=bool(rng.integers(2))))
        for scene in single:
            image = album.add(render(scene, int(rng.integers(0, 2**63))))
            rows.append(self._description(image, caption(scene)))
        unknown = [[_UNKNOWN, _UNKNOWN]] * len(rows)
        return _pack(rows, album, [IGNORED] * len(rows), unknown)

    def _battle(
        self,
        question: Sequence[int | str],
        sides: Sequence[tuple[Answered, Sequence[int | None]]],
    ) -> _Row:
        row = self._asked(question)
        headings = PROMPT_OF_JUDGE.headings
        for heading, (answer, images) in zip(headings[1:], sides, strict=True):
            self._say(row, heading)
            self._answer(row, answer, images)
            row.ends.append(len(row.ids) - 1)
        self._say(row, PROMPT_OF_JUDGE.closing)
        self._say(row, "assistant :")
        return row

    def _solution(
        self,
        question: Sequence[int | str],
        answer: Answered,
        images: Sequence[int | None],
        *,
        twice: bool,
    ) -> _Row:
        row = self._asked(question)
        headings = PROMPT_OF_JUDGE.headings
        for number, heading in enumerate(headings[1 : 3 if twice else 2]):
            # What follows the first answer tells that it has no further step.
            self._say(row, heading, written=number == 1)
            self._answer(row, answer, images, written=True)
        self._say(row, PROMPT_OF_JUDGE.closing if twice else headings[2], written=True)
        row.ends = [0, 0]
        return row

    def _description(self, image: int | str, words: str) -> _Row:
        row = self._opened()
        self._add(row, image)
        self._say(row, PROMPT)
        self._say(row, "assistant :")
        self._say(row, words, written=True)
        row.words[len(row.ids) - 1] = self._end
        row.ends = [0, 0]
        return row

    def _opened(self) -> _Row:
        row = _Row()
        self._say(row, "<bos> user :")
        return row

    def _asked(self, question: Sequence[int | str]) -> _Row:
        row = self._opened()
        self._say(row, PROMPT_OF_JUDGE.headings[0])
        for piece in question:
            self._add(row, piece)
        return row

    def _add(self, row: _Row, piece: int | str) -> None:
        if isinstance(piece, str):
            self._say(row, piece)
        else:
            self._show(row, piece)

    def _say(self, row: _Row, text: str, *, written: bool = False) -> range:
        """Append a text; returns the places of its tokens. written: each is to be foretold."""
        tokens = self._tokens(text)
        before = len(row.ids)
        for token in tokens:
            if written:
                row.words[len(row.ids) - 1] = token
            row.ids.append(token)
            row.slots.append(-1)
            row.places.append((row.next_place,) * 3)
            row.next_place += 1
        return range(before, len(row.ids))

    def _show(self, row: _Row, image: int) -> range:
        """Append an image between its marks; returns the places of its nine tokens."""
        self._mark(row, self._start)
        before, place = len(row.ids), row.next_place
        for cell in range(CELLS):
            row.ids.append(self._pad)
            row.slots.append(image * CELLS + cell)
            row.places.append((place, place + cell // GRID, place + cell % GRID))
        row.next_place += GRID
        self._mark(row, self._stop)
        return range(before, before + CELLS)

    def _mark(self, row: _Row, token: int) -> None:
        row.ids.append(token)
        row.slots.append(-1)
        row.places.append((row.next_place,) * 3)
        row.next_place += 1

    def _answer(
        self,
        row: _Row,
        answer: Answered,
        images: Sequence[int | None],
        *,
        written: bool = False,
    ) -> None:
        for number, ((text, _), image) in enumerate(zip(answer.steps, images, strict=True)):
            begun = len(row.ids)
            known = bool(answer.right)
            right = answer.right[number] if known else None
            told = self._say(row, text, written=written) if text else range(0)
            shown = self._show(row, image) if image is not None else range(0)
            for place in range(begun, len(row.ids)):
                row.parts[place] = number + 1
            if known:
                self._mark_right(row, told, shown, right, answer.shown[number])
                row.steps.append((len(row.ids) - 1, _figures(answer, number)))

    def _mark_right(
        self, row: _Row, told: range, shown: range, right: Scene | None, seen: Scene | None
    ) -> None:
        """Say of each object whether it is right and what should be there, and so of cells."""
        due = {} if right is None else {what.cell: what for what in right.objects}
        names = {phrase(what) for what in due.values()}
        for place in told:
            if row.ids[place] in self._objects:
                text, cell = self._objects[row.ids[place]]
                row.right[place] = int(text in names)
                row.due[place] = _look(due.get(cell))
        by_cell = {} if seen is None else {what.cell: what for what in seen.objects}
        for cell, place in enumerate(shown):
            wanted = due.get(cell)
            row.due[place] = _look(wanted)
            if cell in by_cell or wanted is not None:
                row.right[place] = int(by_cell.get(cell) == wanted)

    def _tokens(self, text: str) -> list[int]:
        if text not in self._known:
            if len(self._known) > 20_000:
                self._known.clear()
            ids: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
            self._known[text] = ids
        return self._known[text]


class _Album:
    """The images of some rows, each once."""

    def __init__(self) -> None:
        self.images: list[ImageArtifact] = []
        self.scenes: list[Scene | None] = []

    def add(self, piece: str | ImageArtifact, scene: Scene | None = None) -> int | str:
        """The number of an image; a text as it is."""
        if isinstance(piece, str):
            return piece
        self.images.append(piece)
        self.scenes.append(scene)
        return len(self.images) - 1

    def add_steps(self, answer: Answered) -> list[int | None]:
        """The number of each step's image."""
        numbers: list[int | None] = []
        for place, (_, image) in enumerate(answer.steps):
            scene = answer.shown[place] if answer.shown else None
            number = None if image is None else self.add(image, scene)
            numbers.append(number if isinstance(number, int) else None)
        return numbers


_UNKNOWN = (float("nan"),) * 8


def _truth_row(answer: Answered) -> tuple[float, ...]:
    truth = answer.truth
    if truth is None:
        return _UNKNOWN
    return (
        truth.total, truth.correctness, truth.coherency, truth.consistency, truth.quality,
        truth.preference, truth.completeness, truth.richness,
    )  # fmt: skip


def _figures(answer: Answered, number: int) -> tuple[float, float, float]:
    told, shown, right = answer.told[number], answer.shown[number], answer.right[number]
    return _f1(told, right), _f1(shown, right), _f1(told, shown)


def _f1(scene: Scene | None, other: Scene | None) -> float:
    if scene is None or other is None:
        return 0.0
    number = len(scene.objects) + len(other.objects)
    return 2 * len({*scene.objects} & {*other.objects}) / number if number else 1.0


def _looks(album: _Album) -> IntArray:
    """(images, 9, 4) what each cell shows: shape, color and size from 1, and which cell it is."""
    looks = np.zeros((len(album.images), CELLS, len(CELL_KINDS)), np.int64)
    looks[..., -1] = np.arange(CELLS)
    for row, image, scene in zip(looks, album.images, album.scenes, strict=True):
        for what in (parse_image(image) if scene is None else scene).objects:
            row[what.cell, :3] = _look(what)
    return looks


def _look(what: SceneObject | None) -> tuple[int, int, int]:
    """Shape, color and size from 1; 0 for nothing."""
    if what is None:
        return (0, 0, 0)
    return (
        1 + SHAPES.index(what.shape),
        1 + COLORS.index(what.color),
        1 + SIZES.index(what.size),
    )


def _pack(
    rows: Sequence[_Row],
    album: _Album,
    verdicts: Sequence[int],
    truths: Sequence[Sequence[tuple[float, ...]]],
) -> Rows:
    length = max(len(row.ids) for row in rows)
    shape = (len(rows), length)
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    slots, parts = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
    words, right = np.full(shape, IGNORED, np.int64), np.full(shape, IGNORED, np.int64)
    due = np.full((*shape, 3), IGNORED, np.int64)
    places = np.zeros((3, *shape), np.int64)
    for number, row in enumerate(rows):
        width = len(row.ids)
        ids[number, :width], mask[number, :width] = row.ids, 1
        slots[number, :width] = row.slots
        places[:, number, :width] = np.array(row.places).T
        for table, known in ((words, row.words), (right, row.right), (parts, row.parts)):
            for place, value in known.items():
                table[number, place] = value
        for place, look in row.due.items():
            due[number, place] = look
    steps = [(number, place) for number, row in enumerate(rows) for place, _ in row.steps]
    figures = [figure for row in rows for _, figure in row.steps]
    drawn = [see_image(image.to_pil()) for image in album.images]
    tensor = torch.from_numpy
    return Rows(
        ids=tensor(ids),
        mask=tensor(mask),
        places=tensor(places),
        slots=tensor(slots),
        patches=tensor(np.stack(drawn) if drawn else np.zeros((0, 36, 384), np.float32)),
        looks=tensor(_looks(album)),
        words=tensor(words),
        due=tensor(due),
        right=tensor(right),
        steps=torch.tensor(steps, dtype=torch.long).view(-1, 2),
        figures=torch.tensor(figures, dtype=torch.float32).view(-1, STEP_FIGURES),
        parts=tensor(parts),
        ends=torch.tensor([row.ends for row in rows]),
        truths=torch.tensor(truths, dtype=torch.float32),
        verdicts=torch.tensor(verdicts),
        places_of_verdict=torch.tensor([len(row.ids) - 1 for row in rows]),
    )
