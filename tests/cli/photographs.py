"""Photos of one color each by category, and models that tell, draw and compare their colors."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from tests.plugin import user_models

ROLES = ("--generator=python:user_models:generator", "--encoder=python:user_models:encoder")

MODEL = "--model=python:user_models:noisy"


def make_photos(home: Path, counts: dict[str, int]) -> None:
    """Photographs below `photos`, so many of each category, and the models."""
    rng = np.random.default_rng(0)
    shutil.copy(str(user_models.__file__), home)
    for category, count in counts.items():
        folder = home / "photos" / category
        folder.mkdir(parents=True)
        for number in range(count):
            color = tuple(int(value) for value in rng.integers(256, size=3))
            Image.new("RGB", (16, 16), color).save(folder / f"{number:02d}.png")
