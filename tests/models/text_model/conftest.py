"""Tiny checkpoints of every role, built once; copies to damage; binding and loading."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Battle, Describer
from pytest_cepbench.models.text_model.unified import UnifiedModel
from tests.models.binding import bind_text, load_once, plain
from tests.tiny.common import JUDGE_WORDS, pictures
from tests.tiny.unified import BUILDERS as UNIFIED
from tests.tiny.unified import DRAW

Build = Callable[[str], Path]
"""Name of a builder -> the folder of its tiny checkpoint."""

Load = Callable[..., Any]
"""(folder, or name of its builder, query) -> the loaded model, or the bound role."""


def build_once(root: Path, builders: Mapping[str, Callable[..., Path]], **options: Any) -> Build:
    """Build the checkpoints in folders of their names when they are asked for."""

    def build(name: str) -> Path:
        from pytest_cepbench.models.torch_runtime import quiet

        folder = root / name
        if not folder.exists():
            import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

            with quiet():
                builders[name](folder, **options)
        return folder

    return build


def change(file: Path, **values: Any) -> None:
    """Change entries of a JSON file; None takes one out."""
    stored = (json.loads(file.read_text("utf-8")) if file.exists() else {}) | values
    file.write_text(json.dumps({k: v for k, v in stored.items() if v is not None}), "utf-8")


def rewrite(folder: Path, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the tensors of a checkpoint."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    save_file(changed(load_file(file)), file, metadata={"format": "pt"})


# -- describers and writers ------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tiny_describer(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder of a tiny describer by its builder's name; built once, not to be changed."""
    from tests.tiny.describers import BUILDERS

    return build_once(tmp_path_factory.mktemp("describers"), {**BUILDERS, **UNIFIED})


@pytest.fixture
def copied(tmp_path: Path, tiny_describer: Build) -> Build:
    """A copy of a tiny describer that a test may change."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(tiny_describer(name), tmp_path / name))

    return copy


def bound(folder: Path, query: str = "") -> BoundRole:
    """Bind a folder as describer, with parameters."""
    return bind_text(f"{folder}?{query}", "describer")


def describer(folder: Path, query: str = "max_new_tokens=8") -> Describer:
    """Load a folder as describer, with parameters."""
    model = bound(folder, query).load()
    assert isinstance(model, Describer)
    return model


@pytest.fixture(scope="session")
def tiny(tiny_describer: Build) -> Load:
    """A loaded tiny describer by its name and parameters, loaded once; not to be changed."""
    return lambda name, query="max_new_tokens=8": load_once(
        f"{tiny_describer(name)}?{query}", "describer"
    )


def describe(
    model: Describer,
    images: Sequence[Image.Image],
    prompt: str = "describe the image",
    seed: int = 0,
) -> list[Any]:
    """Describe with seeds that count up from the one given."""
    return plain(model.describe(images, prompt, [seed + i for i in range(len(images))]))


# -- judges ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder of a tiny judge or VQA model by its family; built once, not to be changed."""
    from tests.tiny.describers import BUILDERS

    words = (*JUDGE_WORDS, "Yes", "yes", "No", "no", "four", "Four")
    return build_once(tmp_path_factory.mktemp("judges"), BUILDERS, words=words)


@pytest.fixture(scope="session")
def load_judge(tiny_judge: Build) -> Load:
    """A loaded tiny judge, as a user would name it, loaded once; not to be changed."""
    return lambda name, query="dtype=float32": load_once(
        f"{tiny_judge(name)}?device=cpu&{query}", "judge"
    )


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


@pytest.fixture(scope="session")
def unified(tiny_describer: Build) -> Callable[..., UnifiedModel]:
    """A loaded model by family and parameters, loaded once; not to be changed."""
    return lambda family, query="": load_once(spec(tiny_describer(family), query), "generator")
