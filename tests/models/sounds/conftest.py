"""Tiny checkpoints of sounds, built once; copies to damage; sounds; binding and loading."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.artifacts import Sound
from tests.models.text_model.conftest import Build, build_once
from tests.tiny import sounds as tiny
from tests.tones import tone

Load = Callable[..., Any]
"""What the fixture `spec` is."""

BUILDERS: dict[str, Callable[..., Path]] = {
    **tiny.DESCRIBERS,
    **tiny.ENCODERS,
    "hubert": lambda path: tiny.build_wav2vec2(path, kind="Hubert"),
    "vits": tiny.build_vits,
    "musicgen": tiny.build_musicgen,
}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder of a tiny checkpoint by its builder's name; built once, not to be changed."""
    return build_once(tmp_path_factory.mktemp("sounds"), BUILDERS)


@pytest.fixture
def copied(tmp_path: Path, tiny_model: Build) -> Build:
    """A copy of a tiny checkpoint that a test may change."""
    return lambda name: Path(shutil.copytree(tiny_model(name), tmp_path / name))


@pytest.fixture
def spec(tiny_model: Build) -> Load:
    """What a user would type for a tiny checkpoint."""

    def text(name: str, *options: str) -> str:
        if name == "qwen2-audio":  # which seldom ends a text of its own
            options = ("max_new_tokens=32", *options)
        return f"{tiny_model(name)}?{'&'.join(options)}"

    return text


def sounds() -> list[Sound]:
    """Sounds of several lengths and rates, all of other tones."""
    return [tone(220), tone(880, 0.8, 22_050), tone(440, 0.5, 8_000), tone(1760, 1.2)]
