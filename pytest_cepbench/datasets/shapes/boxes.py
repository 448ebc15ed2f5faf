"""The objects of a scene with the boxes that they take up in an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes.look import AREA, DROP, SIDE, FloatArray, coverage
from pytest_cepbench.datasets.shapes.parser import sightings
from pytest_cepbench.datasets.shapes.scene import SceneObject, Shape

_INSIDE = 0.5  # coverage of a pixel whose center lies on a shape's edge

_MARGIN = 0.5  # pixels that an object may reach beyond the shape of its area


@dataclass(frozen=True)
class LocatedObject:
    """An object and its box: left, top, right, bottom in pixels of the image it was seen in."""

    what: SceneObject
    box: tuple[float, float, float, float]


def object_boxes(image: ImageArtifact) -> tuple[LocatedObject, ...]:
    """The objects that `perceive` sees, sorted by cell, each with its tight box. Never raises.

    A box holds the pixels whose center the object covers; in an image of another size it is as
    exact as those 64 x 64 pixels are.
    """
    width, height = image.size
    located = []
    for what, cover, left, top in sightings(image):
        own = _own(what.shape, cover)
        # An object too faint to cover any pixel to one half still has its strongest pixel.
        inside = own >= min(_INSIDE, float(own.max()))
        columns, rows = np.flatnonzero(inside.any(axis=0)), np.flatnonzero(inside.any(axis=1))
        x, y = width / SIDE, height / SIDE
        box = (
            (left + float(columns[0])) * x,
            (top + float(rows[0])) * y,
            (left + float(columns[-1]) + 1) * x,
            (top + float(rows[-1]) + 1) * y,
        )
        located.append(LocatedObject(what, box))
    return tuple(located)


def _own(shape: Shape, cover: FloatArray) -> FloatArray:
    """Without what lies outside the shape as its area and center of mass have it.

    Large neighbors reach into each other's cells, as near as the object's own corners. They also
    enlarge the first estimate and pull it aside, so a second one is made of what is left.
    """
    pixels = np.arange(len(cover)) + 0.5
    for _ in range(2):
        radius = float((cover.sum() / AREA[shape]) ** 0.5) + _MARGIN
        across = pixels - np.average(pixels, weights=cover.sum(axis=0))
        down = pixels - np.average(pixels, weights=cover.sum(axis=1)) + DROP[shape] * radius
        reached = coverage(shape, across[None, :], down[:, None], radius) >= _INSIDE
        kept = np.where(reached, cover, 0.0)
        if not kept.any():  # a ring, say, which no world draws: all of it counts
            break
        cover = kept
    return cover
