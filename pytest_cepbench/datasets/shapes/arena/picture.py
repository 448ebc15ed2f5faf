"""Pictures: what an image shows, where exactly, and how much of it that leaves unexplained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes.parser import sightings, world_pixels
from pytest_cepbench.datasets.shapes.render import (
    AREA,
    CELL,
    DROP,
    PLACE_JITTER,
    RADII,
    RADIUS_JITTER,
    draw,
)
from pytest_cepbench.datasets.shapes.scene import CELLS, SIZES, Scene


@dataclass(frozen=True)
class Picture:
    """An image that was read.

    scene: what it shows.
    centers: (x, y) of the object in each cell that has one, in pixels of 64 x 64.
    residual: root mean square difference, over all pixels and channels as levels in [0, 1], to the
        drawing of that scene that comes nearest.
    """

    scene: Scene
    centers: Mapping[int, tuple[float, float]]
    residual: float


def read_picture(image: ImageArtifact) -> Picture:
    """Read an image of any size; it is brought to 64 x 64 pixels first. Never raises."""
    objects, centers = [], {}
    jitter = np.zeros((CELLS, 3))
    for what, cover, left, top in sightings(image):
        pixels = np.arange(len(cover)) + 0.5
        radius = float((cover.sum() / AREA[what.shape]) ** 0.5)
        x = left + float(np.average(pixels, weights=cover.sum(axis=0)))
        y = top + float(np.average(pixels, weights=cover.sum(axis=1))) - DROP[what.shape] * radius
        objects.append(what)
        centers[what.cell] = (x, y)
        jitter[what.cell] = (
            (x - (what.column + 0.5) * CELL) / PLACE_JITTER,
            (y - (what.row + 0.5) * CELL) / PLACE_JITTER,
            (radius - RADII[SIZES.index(what.size)]) / RADIUS_JITTER,
        )
    scene = Scene(tuple(objects))
    # What lies outside the world's jitter is no drawing of the world, so it counts as unexplained.
    nearest = draw(scene, np.clip(jitter, -1.0, 1.0))
    difference = (world_pixels(image) - nearest.pixels) / 255.0
    return Picture(scene, centers, float(np.sqrt(np.mean(difference**2))))
