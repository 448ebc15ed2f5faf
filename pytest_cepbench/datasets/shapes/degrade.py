"""Knobs: a scene made worse by a known amount.

Every decision compares one number in [0, 1), drawn for (seed, knob, cell), with the knob. What a
knob does at some setting it therefore also does at every higher one, to the same objects and in the
same way, and two settings differ by what was added only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import combinations
from typing import TypeVar

import numpy as np

from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    SHAPES,
    SIZES,
    FloatArray,
    Scene,
    SceneObject,
)

Word = TypeVar("Word")

ATTRACTOR = Scene(
    (
        SceneObject(cell=4, size="large", color="red", shape="circle"),
        SceneObject(cell=8, size="small", color="blue", shape="square"),
    )
)
"""What a model that has collapsed describes or draws in place of anything."""

_STREAM = 1  # keeps these draws apart from the jitter of `render`, which has the same seeds


@dataclass(frozen=True)
class Knobs:
    """Faults of a model, numbers in [0, 1]; at zero it is exact.

    Raises ValueError naming the one that is out of range.
    """

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is a probability in [0, 1], got {value!r}")

    @cached_property
    def turned(self) -> dict[str, float]:
        """The knobs that are not at zero."""
        return {name: float(value) for name, value in asdict(self).items() if value > 0}


@dataclass(frozen=True)
class Degradation(Knobs):
    """Probabilities in [0, 1], applied at every step.

    miss, recolor, reshape, resize, move: that an object is left out, gets another color, another
        shape, the other size, or goes to a cell that was free.
    swap: that two objects of the scene, of different look, exchange places.
    blank: that the whole answer is an empty text or a black image.
    collapse: that the whole scene becomes one fixed scene, whatever it was.
    Raises ValueError naming the knob that is out of range.
    """

    miss: float = 0.0
    recolor: float = 0.0
    reshape: float = 0.0
    resize: float = 0.0
    move: float = 0.0
    swap: float = 0.0
    blank: float = 0.0
    collapse: float = 0.0


# The draws are laid out in this order: a new knob goes to the end, or all old ones draw anew.
KNOB_NAMES = tuple(field.name for field in fields(Degradation))


def degrade_scene(scene: Scene, knobs: Degradation, seed: int) -> Scene:
    """The scene after all knobs but `blank` have acted on it.

    seed: any non-negative integer. Looks change first, then places, and last objects are left out.
    """
    if not knobs.turned.keys() - {"blank"}:
        return scene
    happens, which = drawn_decisions(seed)
    if happens["collapse"][0] < knobs.collapse:
        return ATTRACTOR
    cells = [own.cell for own in scene.objects]
    places = dict(zip(cells, cells, strict=True))
    pairs = [(a, b) for a, b in combinations(scene.objects, 2) if a.look != b.look]
    if pairs and happens["swap"][0] < knobs.swap:
        first, second = pairs[int(which["swap"][0] * len(pairs))]
        places[first.cell], places[second.cell] = second.cell, first.cell
    # A free cell for each object, as far as there are any, settled for all at once, so that no
    # object's target depends on whether another one moves.
    free = [cell for cell in range(CELLS) if cell not in places]
    targets = {cell: free.pop(int(which["move"][cell] * len(free))) for cell in cells if free}
    kept = []
    for own in scene.objects:
        cell, color, shape, size = own.cell, own.color, own.shape, own.size
        if happens["miss"][cell] < knobs.miss:
            continue
        if happens["recolor"][cell] < knobs.recolor:
            color = another(COLORS, color, which["recolor"][cell])
        if happens["reshape"][cell] < knobs.reshape:
            shape = another(SHAPES, shape, which["reshape"][cell])
        if happens["resize"][cell] < knobs.resize:
            size = another(SIZES, size, which["resize"][cell])
        moves = happens["move"][cell] < knobs.move and cell in targets
        kept.append(SceneObject(targets[cell] if moves else places[cell], size, color, shape))
    return Scene(tuple(kept))


def is_blank(knobs: Degradation, seed: int) -> bool:
    """True where the whole answer of this seed is lost."""
    return knobs.blank > 0 and bool(drawn_decisions(seed)[0]["blank"][0] < knobs.blank)


def drawn_decisions(
    seed: int, knobs: Sequence[str] = KNOB_NAMES, places: int = CELLS
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """For each knob (places,) numbers in [0, 1) that decide whether, and as many for which."""
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAM))))
    table = source.random((len(knobs), 2, places))
    happens = dict(zip(knobs, table[:, 0], strict=True))
    which = dict(zip(knobs, table[:, 1], strict=True))
    return happens, which


def another(words: tuple[Word, ...], current: Word, draw: float) -> Word:
    """Another one of the words than the current one. draw: in [0, 1), decides which."""
    step = 1 + int(draw * (len(words) - 1))
    return words[(words.index(current) + step) % len(words)]
