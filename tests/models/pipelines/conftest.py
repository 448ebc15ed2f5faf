"""Fixtures of generator tests: tiny pipelines built once, a copy to damage, binding, loading."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Generator, ImageLike, Reply
from tests.models.binding import bind_text
from tests.tiny import generators as tiny
from tests.tiny.common import Built

BUILDERS: dict[str, Callable[[Path], Path]] = {
    "stable-diffusion": tiny.build_stable_diffusion,
    "sdxl": tiny.build_sdxl,
    "pixart": tiny.build_pixart,
    "flux": tiny.build_flux,
    "pix2pix": tiny.build_pix2pix,
    "kontext": tiny.build_kontext,
}

FOLDERS = Built(BUILDERS)


def bind_generator(text: str) -> BoundRole:
    """Bind as the plugin does, every file hashed."""
    return bind_text(text, "generator")


def load(text: str) -> Generator:
    """Bind and load."""
    model = bind_generator(text).load()
    assert isinstance(model, Generator)
    return model


def draw(text: str) -> npt.NDArray[np.float32]:
    """The image of one text by the generator that a spec names."""
    (image,) = load(text).generate(["two red circles"], [11])
    assert isinstance(image, np.ndarray), image
    return image


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A Stable Diffusion of the test's own, to damage."""
    return Path(shutil.copytree(FOLDERS["stable-diffusion"], tmp_path / "stable-diffusion"))


TEXTS = ["two red circles and a blue square", "one green triangle", "three small yellow shapes"]
SEEDS = [11, 12, 13]


def levels(drawn: ImageLike | Failure | Reply) -> npt.NDArray[np.int_]:
    """An image that was drawn as grey levels of 0 to 255."""
    assert isinstance(drawn, np.ndarray), drawn
    rounded: npt.NDArray[np.int_] = np.rint(drawn * 255).astype(int)
    return rounded


def apart(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """The largest difference of a pixel."""
    return float(np.abs(first - second).max())
