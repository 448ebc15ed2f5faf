"""Parameters of memory and attention: what they change, what enters keys, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.errors import MissingDependencyError, SpecError
from tests.models.pipelines.conftest import bind_generator, load
from tests.tiny.common import skip_before

pytest.importorskip("torch", reason="generators need the [models] extra")
pytest.importorskip("diffusers", reason="generators need the [models] extra")

pytestmark = pytest.mark.models

SMALL = "num_inference_steps=1&height=32&width=32"


def test_what_can_change_an_image_enters_the_key(folders: dict[str, Path]) -> None:
    """Tiles are blended where they meet, and attention rounds otherwise. How many images the VAE
    decodes at a time, and where parts lie, is as little of the key as the size of a batch.
    """
    folder = folders["flux"]
    plain = bind_generator(f"{folder}?{SMALL}").params
    slices = bind_generator(f"{folder}?{SMALL}&vae_slicing=true&vae_tiling=false").params
    tiles = bind_generator(f"{folder}?{SMALL}&vae_tiling=true&attention_backend=native").params
    placed = bind_generator(f"{folder}?{SMALL}&offload=model&device=cuda&dtype=float32")
    assert slices == plain
    assert tiles == {**plain, "vae_tiling": True, "attention_backend": "native"}
    assert placed.params == plain
    assert placed.dispatched


def test_slices_and_tiles_are_switched_on(folders: dict[str, Path]) -> None:
    """As the VAE itself tells."""
    text = f"{folders['stable-diffusion']}?{SMALL}"
    pipelines = [
        load(f"{text}{query}")._pipeline  # type: ignore[attr-defined]
        for query in ("", "&vae_slicing=true", "&vae_tiling=true")
    ]
    assert [pipeline.vae.use_slicing for pipeline in pipelines] == [False, True, False]
    assert [pipeline.vae.use_tiling for pipeline in pipelines] == [False, False, True]


def test_an_attention_is_chosen_for_one_pipeline_alone(folders: dict[str, Path]) -> None:
    """The library makes a choice for one model that of all others, too: they would be run with an
    attention that their keys do not name.
    """
    skip_before("attention_backend", "diffusers", "0.35")
    from diffusers.models.attention_dispatch import _AttentionBackendRegistry

    before = _AttentionBackendRegistry.get_active_backend()
    plain = load(f"{folders['flux']}?{SMALL}")
    chosen = load(f"{folders['flux']}?{SMALL}&attention_backend=_native_math")
    assert _AttentionBackendRegistry.get_active_backend() == before
    backends = [_backends(model) for model in (plain, chosen)]
    assert backends == [{None}, {"_native_math"}]
    drawn = [np.asarray(model.generate(["a red circle"], [0])[0]) for model in (chosen, plain)]
    np.testing.assert_allclose(drawn[0], drawn[1], atol=1e-4)


def _backends(model: object) -> set[str | None]:
    transformer = model._pipeline.transformer  # type: ignore[attr-defined]
    processors: list[Any] = [getattr(module, "processor", None) for module in transformer.modules()]
    backends = [p._attention_backend for p in processors if hasattr(p, "_attention_backend")]
    return {None if backend is None else backend.value for backend in backends}


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        ("stable-diffusion", "attention_backend=native", "has no backends to choose from"),
        ("flux", "attention_backend=sdpa", "unknown attention_backend 'sdpa'. Known: "),
        ("flux", "attention_backend=flash_hub", "unknown attention_backend 'flash_hub'"),
    ],
)
def test_an_attention_that_cannot_be_had_is_refused(
    folders: dict[str, Path], name: str, query: str, expected: str
) -> None:
    """Never left as it was in silence; and those of the hub would be downloaded code."""
    skip_before("attention_backend", "diffusers", "0.35")
    with pytest.raises(SpecError, match=re.escape(expected)):
        load(f"{folders[name]}?{query}")


def test_an_attention_whose_package_is_missing_is_named(folders: dict[str, Path]) -> None:
    """The library says which package it is, and which version."""
    skip_before("attention_backend", "diffusers", "0.35")
    from importlib import util

    if util.find_spec("flash_attn") is not None:
        pytest.skip("flash-attn is installed")
    expected = "attention_backend=flash cannot be used here: .*flash-attn"
    with pytest.raises(MissingDependencyError, match=expected):
        load(f"{folders['flux']}?attention_backend=flash")
