"""Fixtures of the unified models' tests: tiny checkpoints built once, copies to damage, loading."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cepbench.models.unified.unified_model import UnifiedModel
from tests.models.binding import bind_text
from tests.tiny.unified import BUILDERS, DRAW

Load = Callable[..., UnifiedModel]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the tiny unified models by family; not to be changed."""
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

    from pytest_cepbench.models.torch_runtime import quiet

    root = tmp_path_factory.mktemp("unified")
    with quiet():
        return {name: build(root / name) for name, build in BUILDERS.items()}


@pytest.fixture(scope="session")
def model(folders: dict[str, Path]) -> Load:
    """A loaded model by family and parameters, loaded once; not to be changed."""
    loaded: dict[str, UnifiedModel] = {}

    def load(family: str, query: str = "") -> UnifiedModel:
        text = spec(folders[family], query)
        if text not in loaded:
            unified = bind_text(text, "generator").load()
            assert isinstance(unified, UnifiedModel)
            loaded[text] = unified
        return loaded[text]

    return load


@pytest.fixture
def copied(tmp_path: Path, folders: dict[str, Path]) -> Callable[[str], Path]:
    """A copy of a family's folder that a test may change."""
    return lambda family: Path(shutil.copytree(folders[family], tmp_path / family))


def spec(folder: Path, query: str = "") -> str:
    """The spec of a folder named by its family, which draws 32 x 32 pixels and says little."""
    options = [part for part in (DRAW[folder.name], "max_new_tokens=8", query) if part]
    return f"{folder}?{'&'.join(options)}"
