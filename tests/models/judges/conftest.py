"""Fixtures of judges' tests: tiny checkpoints whose words include the verdicts, and battles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.models.protocols import Battle
from tests.models.binding import bind_text
from tests.tiny.common import JUDGE_WORDS, pictures

Load = Callable[..., Any]
"""(architecture, query="") -> the loaded judge."""

Build = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder of a tiny judge by its architecture; built once, not to be changed."""
    from pytest_cepbench.models.torch_runtime import quiet
    from tests.tiny.describers import build_idefics3, build_llava, build_qwen2_vl

    builders: dict[str, Callable[..., Path]] = {
        "llava": build_llava,
        "qwen2-vl": build_qwen2_vl,
        "idefics3": build_idefics3,
    }
    root = tmp_path_factory.mktemp("judges")

    def build(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

            with quiet():
                builders[name](folder, words=JUDGE_WORDS)
        return folder

    return build


@pytest.fixture
def load(tiny_judge: Build) -> Load:
    """Load a tiny judge as a user would name it."""

    def loaded(name: str, query: str = "dtype=float32") -> Any:
        return bind_text(f"{tiny_judge(name)}?device=cpu&{query}", "judge").load()

    return loaded


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
