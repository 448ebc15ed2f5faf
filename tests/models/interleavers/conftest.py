"""Fixtures of interleaver tests: tiny unified checkpoints built once, loaded as interleavers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cepbench.models.protocols import Interleaver
from tests.models.binding import bind_text
from tests.tiny.unified import BUILDERS, DRAW

Load = Callable[..., Interleaver]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the tiny unified models by family; not to be changed."""
    pytest.importorskip("transformers", reason="interleavers need the [models] extra")
    from pytest_cepbench.models.torch_runtime import quiet

    root = tmp_path_factory.mktemp("interleavers")
    with quiet():
        return {name: build(root / name) for name, build in BUILDERS.items()}


@pytest.fixture(scope="session")
def load(folders: dict[str, Path]) -> Load:
    """A loaded interleaver by family and parameters, loaded once; not to be changed."""
    loaded: dict[str, Interleaver] = {}

    def load_once(family: str, query: str = "") -> Interleaver:
        options = "&".join(part for part in (DRAW[family], query) if part)
        text = f"{folders[family]}?{options}"
        if text not in loaded:
            model = bind_text(text, "interleaver").load()
            assert isinstance(model, Interleaver)
            loaded[text] = model
        return loaded[text]

    return load_once
