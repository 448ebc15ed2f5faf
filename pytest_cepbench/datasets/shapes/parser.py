"""Seeing: pixels to a scene, knowing the world's look but nothing of how an image came about.

Each cell is judged by itself: its color by the direction in which it leaves the background, the
place and radius of its object by center of mass and area, its shape by drawing all four there and
keeping the one that differs least. Exact on what the world draws; blur and noise of the size that
small diffusion models leave are forgiven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes.scene import (
    AREA,
    BACKGROUND,
    CELL,
    CELLS,
    COLORS,
    DROP,
    PALETTE,
    PLACE_JITTER,
    RADII,
    RADIUS_JITTER,
    SHAPES,
    SIDE,
    SIZES,
    FloatArray,
    Scene,
    SceneObject,
    Shape,
    coverage,
    draw,
)

_WINDOW = 22  # a cell's 21.33 pixels, rounded up
_STARTS = (0, 21, 42)
_VISIBLE = 0.15  # rise of a channel over the background that counts as color
_HALO = 0.05  # coverage this far from 0 and 1 is taken for blur
_LEAST_AREA = 18.0  # pixels; the smallest object the world draws covers 46
_REACH = 0.9  # of the root of its area: how far a triangle's corners lie from its center of mass
_SLACK = 1.5  # pixels, for soft edges and for a center that the neighbors have pulled aside
_SIZE_BORDER = sum(RADII) / 2

_AREAS = np.array([[AREA[shape]] for shape in SHAPES])
_DROPS = np.array([[DROP[shape]] for shape in SHAPES])

_HUES = PALETTE - BACKGROUND
_DIRECTIONS = _HUES / np.linalg.norm(_HUES, axis=1, keepdims=True)
_PIXELS = np.arange(_WINDOW) + 0.5

_WINDOWS = np.stack(
    [
        np.arange(SIDE**2).reshape(SIDE, SIDE)[y : y + _WINDOW, x : x + _WINDOW].ravel()
        for y in _STARTS
        for x in _STARTS
    ]
)
"""(9, 484): the numbers of the pixels around each cell, row by row."""


_MOST_KEPT = 4096
"""Scenes that are kept: describers, encoders and checkers each look at every picture of a chain."""

_kept: dict[str, Scene] = {}


def parse_image(image: ImageArtifact) -> Scene:
    """The scene in an image of any size; it is brought to 64 x 64 pixels first. Never raises."""
    scene = known_scene(image.digest)
    if scene is None:
        scene = Scene(tuple(scene_object for scene_object, _, _, _ in sightings(image)))
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[image.digest] = scene
    return scene


def known_scene(digest: str) -> Scene | None:
    """The scene in the image of a digest, where it was parsed before and is still kept."""
    return _kept.get(digest)


def sightings(image: ImageArtifact) -> Iterator[tuple[SceneObject, FloatArray, int, int]]:
    """Each object of the scene, how much it covers of the pixels around it, and where those are.

    Yields (object, (22, 22) coverage in [0, 1], left, top): the window's corner in the 64 x 64
    pixels that the image is brought to.
    """
    rise = (world_pixels(image) / 255.0 - BACKGROUND).reshape(-1, 3)
    highest = np.maximum(np.maximum(rise[:, 0], rise[:, 1]), rise[:, 2])
    windows = rise.take(_WINDOWS, axis=0)
    # The palette's color nearest in direction to each window's visible pixels.
    visible = (highest > _VISIBLE).astype(np.float64).take(_WINDOWS)
    totals = np.matmul(visible[:, None], windows)[:, 0]
    colors: list[int] = (totals @ _DIRECTIONS.T).argmax(axis=1).tolist()
    # How much each pixel is covered by an object of its cell's color: stretched about one half, so
    # that blur changes no area.
    hues = _HUES[colors]
    scale = (hues**2).sum(axis=1)
    share = np.matmul(windows, hues[:, :, None])[..., 0] / scale[:, None]
    covers = np.clip((share.reshape(CELLS, _WINDOW, _WINDOW) - _HALO) / (1 - 2 * _HALO), 0.0, 1.0)
    cells = np.flatnonzero(_areas(covers) >= _LEAST_AREA)
    covers = covers[cells]
    # Without what lies farther out than any shape of this area reaches: a neighbor's corners.
    x, y, area = _masses(covers)
    squared = (_PIXELS - x[:, None])[:, None, :] ** 2 + (_PIXELS - y[:, None])[:, :, None] ** 2
    farthest = (_REACH * np.sqrt(area) + _SLACK) ** 2
    kept = np.where(squared <= farthest[:, None, None], covers, 0.0)
    seen = np.flatnonzero(_areas(kept) >= _LEAST_AREA)
    cells, kept = cells[seen], kept[seen]
    for cell, cover, (shape, size) in zip(cells.tolist(), kept, _fit(kept), strict=True):
        what = SceneObject(cell, SIZES[size], COLORS[colors[cell]], SHAPES[shape])
        yield what, cover, _STARTS[what.column], _STARTS[what.row]


def world_pixels(image: ImageArtifact) -> FloatArray:
    """(64, 64, 3) float64 levels from 0 to 255: an image in the size that the world draws."""
    if image.size == (SIDE, SIDE):
        return image.pixels.astype(np.float64)
    small = image.to_pil().resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float64)


def _fit(covers: FloatArray) -> list[tuple[int, int]]:
    """Indices of the shape and the size that explain each of (n, 22, 22) windows best."""
    x, y, area = _masses(covers)
    across = (_PIXELS - x[:, None])[:, None, :]
    radii = np.sqrt(area / _AREAS)
    sizes = (radii > _SIZE_BORDER).astype(int)
    # Only radii that the world has: a blurred cross would else pass for a smaller circle.
    nominal = np.array(RADII)[sizes]
    radii = np.clip(radii, nominal - RADIUS_JITTER, nominal + RADIUS_JITTER)
    down = (_PIXELS - (y - _DROPS * radii)[..., None])[..., None]
    drawn = map(coverage, SHAPES, repeat(across), down, radii[..., None, None])
    best = np.array([_areas((own - covers) ** 2) for own in drawn]).argmin(axis=0)
    return list(zip(best.tolist(), sizes[best, np.arange(len(best))].tolist(), strict=True))


def _areas(covers: FloatArray) -> FloatArray:
    """(n,) sums of (n, 22, 22) windows, each as NumPy sums one alone."""
    areas: FloatArray = covers.reshape(len(covers), _WINDOW**2).sum(axis=1)
    return areas


def _masses(covers: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Center of mass (x, y), and area, of (n, 22, 22) windows, each (n,), in pixels."""
    area = _areas(covers)
    return covers.sum(axis=1) @ _PIXELS / area, covers.sum(axis=2) @ _PIXELS / area, area


_INSIDE = 0.5  # coverage of a pixel whose center lies on a shape's edge

_MARGIN = 0.5  # pixels that an object may reach beyond the shape of its area


@dataclass(frozen=True)
class LocatedObject:
    """An object and its box: left, top, right, bottom in pixels of the image it was seen in."""

    what: SceneObject
    box: tuple[float, float, float, float]


def object_boxes(image: ImageArtifact) -> tuple[LocatedObject, ...]:
    """The objects that `parse_image` sees, sorted by cell, each with its tight box. Never raises.

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
