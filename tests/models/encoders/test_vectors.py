"""One vector per input, out of whatever shape a library gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.encoders.transformers_encoder import pool
from pytest_cepbench.models.encoders.vectors import to_vectors

torch = pytest.importorskip("torch", reason="vectors are made of tensors")

from transformers import ConvNextConfig, ConvNextModel, ViTConfig, ViTModel  # noqa: E402 # as above
from transformers.modeling_outputs import (  # noqa: E402
    BaseModelOutput,
    ImageClassifierOutput,
)

pytestmark = pytest.mark.models

CHECKPOINT = Checkpoint(Path("step-8"), "transformers", "NovelModel", ("encoder",), {})


@cache
def with_cls() -> Any:
    """A network with a CLS token."""
    sizes = {"hidden_size": 4, "intermediate_size": 4, "image_size": 2, "patch_size": 1}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 1}
    return ViTModel(ViTConfig(**sizes, **layers))


@cache
def without_cls() -> Any:
    """A network of convolutions."""
    return ConvNextModel(ConvNextConfig(hidden_sizes=[2], depths=[1], num_stages=1))


STATES = torch.arange(24.0).reshape(2, 3, 4)
"""(2 images, 3 tokens, 4 features)."""


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 5, 2, 1), (4,)])
def test_more_or_less_than_a_vector_per_input_is_refused(shape: tuple[int, ...]) -> None:
    """Token states or maps are no vector of an image; the message names the shape."""
    with pytest.raises(RoleError, match="NovelModel gives features of shape"):
        to_vectors(CHECKPOINT, torch.ones(shape))


@pytest.mark.parametrize(
    ("network", "output", "pooling", "words"),
    [
        (with_cls, BaseModelOutput(last_hidden_state=STATES), "pooler", "gives no pooled output"),
        (with_cls, ImageClassifierOutput(logits=STATES), "mean", "gives no token states"),
        (without_cls, BaseModelOutput(last_hidden_state=STATES), "auto", "nor a CLS token"),
    ],
)
def test_what_cannot_be_pooled_is_refused(
    network: Callable[[], Any], output: Any, pooling: str, words: str
) -> None:
    """The first place of a model without a CLS token is a patch like any other."""
    with pytest.raises(SpecError, match=words):
        pool(CHECKPOINT, network(), output, pooling)
