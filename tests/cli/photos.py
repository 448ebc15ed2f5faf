"""A folder of photographs of one color each, and the models of `color_models.py` beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

ROLES = ("--generator=python:color_models:generator", "--encoder=python:color_models:encoder")

MODEL = "--model=python:color_models:describer"


def make_photos(home: Path, counts: dict[str, int], name: str = "photos") -> Path:
    """Photographs by category, and the models. Returns their folder."""
    rng = np.random.default_rng(0)
    shutil.copy(Path(__file__).with_name("color_models.py"), home)
    for category, count in counts.items():
        folder = home / name / category
        folder.mkdir(parents=True)
        for number in range(count):
            color = tuple(int(value) for value in rng.integers(256, size=3))
            Image.new("RGB", (16, 16), color).save(folder / f"{number:02d}.png")
    return home / name
