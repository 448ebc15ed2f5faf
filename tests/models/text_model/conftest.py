"""Tiny checkpoints of every role, built once; copies to damage; binding and loading."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Battle, Describer
from pytest_cepbench.models.text_model.unified import UnifiedModel
from tests.models.binding import bind_text, load_once, plain
from tests.tiny.common import JUDGE_WORDS, Built, pictures
from tests.tiny.describers import BUILDERS
from tests.tiny.unified import BUILDERS as UNIFIED
from tests.tiny.unified import DRAW

Build = Callable[[str], Path]
"""Name of a builder -> the folder of its tiny checkpoint."""


# -- describers and writers ------------------------------------------------------------------------


DESCRIBERS = Built({**BUILDERS, **UNIFIED})


@pytest.fixture
def copied(tmp_path: Path) -> Build:
    """A copy of a tiny describer that a test may change."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(DESCRIBERS[name], tmp_path / name))

    return copy


def bound(folder: Path, query: str = "") -> BoundRole:
    """Bind a folder as describer, with parameters."""
    return bind_text(f"{folder}?{query}", "describer")


def describer(folder: Path, query: str = "max_new_tokens=8") -> Describer:
    """Load a folder as describer, with parameters."""
    model = bound(folder, query).load()
    assert isinstance(model, Describer)
    return model


def tiny(name: str, query: str = "max_new_tokens=8") -> Any:
    """A loaded tiny describer by its name and parameters, loaded once; not to be changed."""
    return load_once(f"{DESCRIBERS[name]}?{query}", "describer")


def describe(
    model: Describer,
    images: Sequence[Image.Image],
    prompt: str = "describe the image",
    seed: int = 0,
) -> list[Any]:
    """Describe with seeds that count up from the one given."""
    return plain(model.describe(images, prompt, [seed + i for i in range(len(images))]))


# -- judges ----------------------------------------------------------------------------------------


JUDGES = Built(BUILDERS, words=(*JUDGE_WORDS, "Yes", "yes", "No", "no", "four", "Four"))


def load_judge(name: str, query: str = "dtype=float32") -> Any:
    """A loaded tiny judge, as a user would name it, loaded once; not to be changed."""
    return load_once(f"{JUDGES[name]}?device=cpu&{query}", "judge")


def make_battles() -> list[Battle]:
    """Eight battles of unequal length: with several images, with one, and without any."""
    red, green, yellow = pictures()
    return [
        Battle(["the image", red], ["a circle", green], ["a square on the left", yellow]),
        Battle(["two small circle"], [red], [green, "right"]),
        Battle(["what is shown ?", yellow], ["red"], ["blue and green and yellow"]),
        Battle(["describe a square"], ["a small square"], ["a large circle on top of a square"]),
        Battle(["the image", red, green], [yellow, yellow], ["is", red]),
        Battle(["what ?"], ["red"], ["blue"]),
        Battle(["be brief"], ["a", red, "a", green, "a", yellow], ["bottom"]),
        Battle(["left"], ["right", green], ["top", red]),
    ]


# -- unified models and interleavers ---------------------------------------------------------------


def spec(folder: Path, query: str = "") -> str:
    """The spec of a folder named by its family, which draws 32 x 32 pixels and says little."""
    options = [part for part in (DRAW[folder.name], "max_new_tokens=8", query) if part]
    return f"{folder}?{'&'.join(options)}"


def unified(family: str, query: str = "") -> UnifiedModel:
    """A loaded model by family and parameters, loaded once; not to be changed."""
    model = load_once(spec(DESCRIBERS[family], query), "generator")
    assert isinstance(model, UnifiedModel)
    return model
