"""Fixtures of describer tests: tiny checkpoints built once, copies to damage, binding, loading."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.models.model_spec import parse_spec
from pytest_cepbench.models.protocols import BindContext, BoundRole, Describer
from pytest_cepbench.models.registry import bind
from tests.models.binding import plain

Build = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny_describer(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder of a tiny describer by its builder's name; built once, not to be changed."""
    from pytest_cepbench.models.torch_runtime import quiet
    from tests.tiny.describers import BUILDERS

    root = tmp_path_factory.mktemp("describers")

    def build(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

            with quiet():
                BUILDERS[name](folder)
        return folder

    return build


@pytest.fixture
def copied(tmp_path: Path, tiny_describer: Build) -> Build:
    """A copy of a tiny describer that a test may change."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(tiny_describer(name), tmp_path / name))

    return copy


@pytest.fixture
def bound(context: BindContext) -> Callable[..., BoundRole]:
    """Bind a folder as describer, with parameters."""
    return lambda folder, query="": bind(parse_spec(f"{folder}?{query}"), "describer", context)


@pytest.fixture
def describer(bound: Callable[..., BoundRole]) -> Callable[..., Describer]:
    """Load a folder as describer, with parameters."""

    def load(folder: Path, query: str = "max_new_tokens=8") -> Describer:
        model = bound(folder, query).load()
        assert isinstance(model, Describer)
        return model

    return load


def describe(
    model: Describer,
    images: Sequence[Image.Image],
    prompt: str = "describe the image",
    seed: int = 0,
) -> list[Any]:
    """Describe with seeds that count up from the one given."""
    return plain(model.describe(images, prompt, [seed + i for i in range(len(images))]))
