"""Edited starts: samples that are made of other samples by an edit whose effect is known.

A data set with edits has every sample of its own and, for each edit that the sample can take, one
more: the same start, edited. Both have chains of their own; the metric `equivariance` compares what
models make of the two.

Generated scenes take these, which change scene, image and caption exactly, and no others:

mirror   left and right change places, and each object with its column
move     one object goes to a free cell
recolor  one object gets another color
remove   one object of several is taken away
redraw   nothing is changed, and all of it drawn by another seed: a little moved, larger or smaller

Any other image takes these:

mirror      left and right change places; in English texts the words do, too (`swap_sides`)
brightness  all levels are multiplied by 0.7: what is described stays the same
contrast    all levels go 0.4 of the way to their mean: what is described stays the same
hue         all hues turn by 15 degrees: what is described stays the same
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import AppliedEdit, Dataset, DrawnImage, Sample, SeedImage
from pytest_cepbench.datasets.shapes.samples import (
    SceneDrawing,
    below,
    derived_seed,
    random_generator,
)
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    GRID,
    Color,
    Scene,
    SceneObject,
    caption,
)
from pytest_cepbench.errors import DatasetError, unknown_name

Fact = tuple[int, str, str]
"""Cell, attribute ("size", "color" or "shape") and its value: an object is three of them."""


@dataclass(frozen=True)
class SceneEdit:
    """One edit of one scene.

    An object is meant by its cell, or, where an answer has none in that cell, by its look, if a
    single object of the answer has it: so an edit can be made in what a model said of the scene.
    name: mirror, move, recolor, remove or redraw.
    object: the object that is edited; None for mirror and redraw.
    cell: where it moves to.
    color: what it is colored.
    """

    name: str
    object: SceneObject | None = None
    cell: int | None = None
    color: Color | None = None

    @property
    def target(self) -> Mapping[str, Any]:
        """The edit but for its name, as built-in types."""
        parts = {"object": self.object and asdict(self.object), "cell": self.cell}
        return {k: v for k, v in {**parts, "color": self.color}.items() if v is not None}

    @classmethod
    def read(cls, name: str, target: Mapping[str, Any]) -> SceneEdit:
        """The edit of a name and a target."""
        known = target.get("object")
        edited = None if known is None else SceneObject(**known)
        return cls(name, edited, target.get("cell"), target.get("color"))

    def apply(self, scene: Scene) -> Scene | None:
        """The scene after the edit; None where it has not the object that is meant.

        An object that moves to a cell where the scene has another one takes its place.
        """
        if self.object is None:
            return mirrored(scene) if self.name == "mirror" else scene
        at_cell = [own for own in scene.objects if own.cell == self.object.cell]
        alike = [own for own in scene.objects if own.look == self.object.look]
        if not at_cell and len(alike) != 1:
            return None
        meant = (at_cell or alike)[0]
        others = [other for other in scene.objects if other != meant]
        if self.name == "recolor":
            assert self.color is not None
            others.append(replace(meant, color=self.color))
        elif self.name == "move":
            assert self.cell is not None
            others = [other for other in others if other.cell != self.cell]
            others.append(replace(meant, cell=self.cell))
        return Scene(tuple(others))


def mirrored(scene: Scene) -> Scene:
    """The scene with left and right exchanged."""
    return Scene(
        tuple(replace(own, cell=own.cell + GRID - 1 - 2 * own.column) for own in scene.objects)
    )


def choose_edit(name: str, scene: Scene, sample_id: str) -> SceneEdit | None:
    """The edit of a name for a scene; None where the scene cannot take it, or stays as it is.

    sample_id: decides which object, cell and color, among equally likely ones.
    A single object is not removed: what is left would be no scene to describe.
    """
    objects = scene.objects
    if name == "mirror":
        return None if mirrored(scene) == scene else SceneEdit(name)
    if name == "redraw":
        return SceneEdit(name) if objects else None
    taken = {own.cell for own in objects}
    free = [cell for cell in range(CELLS) if cell not in taken]
    if not objects or (name == "move" and not free) or (name == "remove" and len(objects) < 2):
        return None
    draw = random_generator(derived_seed(0, f"{sample_id} {name}"))
    edited = objects[below(draw, len(objects))]
    if name == "move":
        return SceneEdit(name, edited, cell=free[below(draw, len(free))])
    if name == "recolor":
        others = [color for color in COLORS if color != edited.color]
        return SceneEdit(name, edited, color=others[below(draw, len(others))])
    return SceneEdit(name, edited)


SCENE_EDITS = ("mirror", "move", "recolor", "remove", "redraw")
"""The names of the edits."""


def scene_facts(scene: Scene) -> frozenset[Fact]:
    """Size, color and shape of each object, in its cell."""
    return frozenset(
        (own.cell, attribute, value)
        for own in scene.objects
        for attribute, value in zip(("size", "color", "shape"), own.look, strict=True)
    )


EDITS_VERSION = "edits/1"
"""Changes when an edit makes other samples of the same ones: part of the data set's identity."""

Pixels = npt.NDArray[np.uint8]

_TURN = 15 / 360


def _turn_hue(pixels: Pixels) -> Pixels:
    turned = np.array(Image.fromarray(pixels).convert("HSV"))
    turned[..., 0] += round(_TURN * 256)  # wraps around, as hues do
    return np.asarray(Image.fromarray(turned, "HSV").convert("RGB"))


PIXEL_EDITS: Mapping[str, Callable[[Pixels], Pixels]] = {
    "mirror": lambda pixels: pixels[:, ::-1],
    "brightness": lambda pixels: np.rint(pixels * 0.7).astype(np.uint8),
    "contrast": lambda pixels: np.rint(pixels + 0.4 * (pixels.mean() - pixels)).astype(np.uint8),
    "hue": _turn_hue,
}
"""Edits of any image: (height, width, 3) pixels before and after."""

UNSEEN_EDITS = ("redraw", "brightness", "contrast", "hue")
"""Edits that change no description."""

EDITS = tuple(dict.fromkeys((*SCENE_EDITS, *PIXEL_EDITS)))
"""The names of all edits."""

_SIDES = re.compile(
    r"\b(?:(?P<word>left|right)(?P<suffix>most|wards?|-hand|hand)?"
    r"|(?P<turn>counter-?clockwise|anti-?clockwise|clockwise))\b",
    re.IGNORECASE | re.ASCII,
)

_NO_SIDES = re.compile(
    r"\ball right\b|\bright (?:away|now|angles?|next|there|here|up to|before|after|in front"
    r"|behind|above|below|in the middle)\b|\bhuman rights?\b|\bleft ?over\b|\b(?:is|are|was|were"
    r"|has|have|had|been|nothing|something) left\b(?! of\b| side\b|-)",
    re.IGNORECASE | re.ASCII,
)


def swap_sides(text: str) -> str:
    """An English text of the mirrored image: "left" and "right" exchanged, and turns of clocks.

    Also in leftmost, rightward and left-hand; capitals stay. Rules, not understanding: phrases in
    which the words are no sides ("right now", "is left") are known by a short list, and writing in
    the image, hands and compass points are not turned. Done twice it gives the text again, but for
    the word counterclockwise, which has several spellings.
    """
    kept = [match.span() for match in _NO_SIDES.finditer(text)]

    def swap(match: re.Match[str]) -> str:
        if any(low <= match.start() < high for low, high in kept):
            return match.group()
        word = match["word"]
        if word is not None:
            other = "right" if word.lower() == "left" else "left"
            return _like(word, other) + (match["suffix"] or "")
        turn = match["turn"]
        other = "counterclockwise" if turn.lower() == "clockwise" else "clockwise"
        return _like(turn, other)

    return _SIDES.sub(swap, text)


def _like(model: str, word: str) -> str:
    """The word in the capitals of another."""
    if model.isupper():
        return word.upper()
    return word.capitalize() if model[0].isupper() else word


def edited_image(image: SeedImage, edit: str) -> ImageArtifact:
    """The image after one of `PIXEL_EDITS`. Raises ImageError where it cannot be read."""
    return ImageArtifact(PIXEL_EDITS[edit](image.load().pixels))


def check_edits(names: Sequence[str]) -> None:
    """Raise ValueError for a name that is no edit, or that is there twice."""
    for name, times in Counter(names).items():
        if name not in EDITS:
            raise ValueError(unknown_name("edit", name, EDITS))
        if times > 1:
            raise ValueError(f"edit {name!r} is there {times} times")


def with_edits(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """The data set with an edited sample for each edit that a sample can take.

    An edited sample has the id of the other one and the edit's name, its categories, and its
    cluster: the two are not independent. A scene that an edit leaves as it is, or that cannot take
    it, has none; the data set's notes say how many these are.
    Raises DatasetError for an edit that is unknown or that no sample of the data can take.
    """
    try:
        check_edits(names)
    except ValueError as error:
        raise DatasetError(str(error)) from error
    made = {name: [_edited(sample, name) for sample in dataset.samples] for name in names}
    edited: list[Sample] = []
    notes = []
    for name, samples in made.items():
        taken = [sample for sample in samples if sample is not None]
        if not taken:
            raise DatasetError(_refusal(dataset.name, dataset.samples, name))
        if len(taken) < len(samples):
            notes.append(
                f"edit {name}: left out {len(samples) - len(taken)} of {len(samples)} samples, "
                "which it would not change, or which cannot take it"
            )
        edited += taken
    return replace(
        dataset,
        identity={**dataset.identity, "edits": f"{EDITS_VERSION} {' '.join(names)}"},
        samples=tuple(sorted((*dataset.samples, *edited), key=lambda sample: sample.id)),
        whole=None if dataset.whole is None else with_edits(dataset.whole, names),
        notes=(*dataset.notes, *notes),
    )


def _refusal(dataset: str, samples: Sequence[Sample], name: str) -> str:
    """Why no sample takes an edit, and which edits they take."""
    if all(sample.image is None for sample in samples):
        return f"data set {dataset!r} has no images, and cannot take the edit {name!r}"
    scenes = any(_drawing(sample) is not None for sample in samples)
    taken = SCENE_EDITS if scenes else tuple(PIXEL_EDITS)
    if name in taken:
        return f"edit {name!r} would change no sample of data set {dataset!r}"
    what = "generated scenes" if scenes else "images that are no generated scenes (loader shapes)"
    return (
        f"data set {dataset!r} cannot take the edit {name!r}: it has {what}, which take "
        f"{', '.join(taken)}"
    )


def _drawing(sample: Sample) -> SceneDrawing | None:
    """What draws a sample's image, where that is a generated scene."""
    draw = sample.image.draw if isinstance(sample.image, DrawnImage) else None
    return draw if isinstance(draw, SceneDrawing) else None


def _edited(sample: Sample, name: str) -> Sample | None:
    """The sample after an edit; None where it cannot take it or is the same after it."""
    drawing = _drawing(sample)
    if name not in (PIXEL_EDITS if drawing is None else SCENE_EDITS) or sample.image is None:
        return None
    text, metadata, target = sample.text, {}, {}
    draw: Callable[[], ImageArtifact] = partial(edited_image, sample.image, name)
    if drawing is not None:
        edit = choose_edit(name, drawing.scene, sample.id)
        scene = None if edit is None else edit.apply(drawing.scene)
        if edit is None or scene is None:
            return None
        if name == "redraw":
            draw = replace(drawing, seed=derived_seed(drawing.seed, name))
        elif name != "mirror":
            # The jitter is of the cell, so what the edit leaves alone keeps its pixels.
            draw = replace(drawing, scene=scene)
        text, target = caption(scene), dict(edit.target)
        metadata = {"scene": [asdict(scene_object) for scene_object in scene.objects]}
    elif text is not None and name == "mirror":
        text = swap_sides(text)
    return replace(  # what else is known of the other one may not be true of it
        sample,
        id=f"{sample.id} {name}",
        image=DrawnImage(draw),
        text=text,
        metadata=metadata,
        cluster=sample.unit,
        edit=AppliedEdit(name, sample.id, target),
    )
