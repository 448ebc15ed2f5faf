"""The suite's own loader: nine-color images in three categories, drawn, not read from files."""

from __future__ import annotations

from functools import partial

import numpy as np

from pytest_cepbench import Dataset, DrawnImage, ImageArtifact, Sample

VERSION = 1  # raised when the same options give other samples
PALETTE = np.array([(200, 40, 40), (30, 160, 60), (30, 60, 200), (230, 210, 40)], dtype=np.uint8)
NAMES = ("red", "green", "blue", "yellow")


def load(per_category: int = 6) -> Dataset:
    """Samples sorted by id. A loader that reads files takes `path` too; see the documentation."""
    samples = [
        Sample(
            id=f"{category}/{index:02d}",
            categories=(category,),
            image=DrawnImage(partial(draw, category, index)),
            text=" ".join(NAMES[i] for i in places(category, index).ravel()),
        )
        for category in ("columns", "rows", "scattered")
        for index in range(per_category)
    ]
    return Dataset(
        name="my-images",
        identity={"loader": "my_images", "version": VERSION, "per_category": per_category},
        samples=tuple(samples),
    )


def places(category: str, index: int) -> np.ndarray:
    """(3, 3) indices into the palette."""
    rng = np.random.Generator(np.random.PCG64(index))
    line = rng.permutation(len(PALETTE))[:3]
    if category == "scattered":
        return rng.integers(len(PALETTE), size=(3, 3))
    return np.tile(line, (3, 1)) if category == "columns" else np.tile(line[:, None], (1, 3))


def draw(category: str, index: int) -> ImageArtifact:
    """The sample's image, the same at every call."""
    pixels = PALETTE[places(category, index)].repeat(16, axis=0).repeat(16, axis=1)
    return ImageArtifact(pixels)
