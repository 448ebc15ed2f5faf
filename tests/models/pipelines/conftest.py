"""Fixtures of generator tests: tiny pipelines built once, a copy to damage, binding, loading."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Generator
from tests.models.binding import bind_text
from tests.tiny import generators as tiny

BUILDERS: dict[str, Callable[[Path], Path]] = {
    "stable-diffusion": tiny.build_stable_diffusion,
    "sdxl": tiny.build_sdxl,
    "pixart": tiny.build_pixart,
    "flux": tiny.build_flux,
    "pix2pix": tiny.build_pix2pix,
    "kontext": tiny.build_kontext,
}


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


class Built(dict[str, Path]):
    """A tiny pipeline of each kind, built when it is first asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def __missing__(self, name: str) -> Path:
        self[name] = BUILDERS[name](self._root / name)
        return self[name]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny pipeline of each kind; not to be changed."""
    return Built(tmp_path_factory.mktemp("pipelines"))


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A Stable Diffusion of the test's own, to damage."""
    return Path(shutil.copytree(folders["stable-diffusion"], tmp_path / "stable-diffusion"))
