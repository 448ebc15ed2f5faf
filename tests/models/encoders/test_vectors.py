"""One vector per input, out of whatever shape a library gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.encoders.transformers_encoder import pool, pooled_output, settle_pooling
from pytest_cepbench.models.encoders.vectors import to_vectors

torch = pytest.importorskip("torch", reason="vectors are made of tensors")

from transformers import ConvNextConfig, ConvNextModel, ViTConfig, ViTModel  # noqa: E402 # as above
from transformers.modeling_outputs import (  # noqa: E402
    BaseModelOutput,
    BaseModelOutputWithPooling,
    ImageClassifierOutput,
    ModelOutput,
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


@dataclass
class JointOutput(ModelOutput):  # type: ignore[misc] # transformers is not typed
    """What a dual encoder of other people's code returns."""

    image_embeds: Any = None
    pooler_output: Any = None


STATES = torch.arange(24.0).reshape(2, 3, 4)
"""(2 images, 3 tokens, 4 features)."""


def test_features_are_float32_rows() -> None:
    """A pooler of convolutions leaves height and width of 1, which are dropped."""
    vectors = to_vectors(CHECKPOINT, torch.ones(2, 5, 1, 1, dtype=torch.bfloat16))
    assert vectors.shape == (2, 5)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 5, 2, 1), (4,)])
def test_more_or_less_than_a_vector_per_input_is_refused(shape: tuple[int, ...]) -> None:
    """Token states or maps are no vector of an image; the message names the shape."""
    with pytest.raises(RoleError, match="NovelModel gives features of shape"):
        to_vectors(CHECKPOINT, torch.ones(shape))


@pytest.mark.parametrize(
    ("pooling", "hidden", "expected"),
    [
        ("auto", STATES, STATES[:, 0]),
        ("cls", STATES, STATES[:, 0]),
        ("mean", STATES, STATES.mean(dim=1)),
        ("mean", STATES.reshape(2, 3, 2, 2), STATES.mean(dim=2)),
    ],
    ids=["auto without a pooler", "cls", "mean of tokens", "mean of places"],
)
def test_states_are_pooled_as_asked(pooling: str, hidden: Any, expected: Any) -> None:
    """The CLS token comes first; convolutions give places in the last two dimensions."""
    output = BaseModelOutput(last_hidden_state=hidden)
    assert torch.allclose(pool(CHECKPOINT, with_cls(), output, pooling), expected)


def test_the_models_own_pooled_output_goes_first() -> None:
    """With auto and pooler; cls and mean were asked for instead of it."""
    output = BaseModelOutputWithPooling(last_hidden_state=STATES, pooler_output=torch.ones(2, 4))
    assert pool(CHECKPOINT, with_cls(), output, "auto") is output.pooler_output
    assert pool(CHECKPOINT, with_cls(), output, "pooler") is output.pooler_output
    assert torch.equal(pool(CHECKPOINT, with_cls(), output, "cls"), STATES[:, 0])


def test_joint_features_go_before_a_pooler() -> None:
    """Older models return a tensor, newer ones an object, and some of them both kinds."""
    output = JointOutput(image_embeds=torch.ones(1), pooler_output=torch.zeros(1))
    assert pooled_output(output) is output.image_embeds
    assert pooled_output(STATES) is STATES
    assert pooled_output(JointOutput(image_embeds=None)) is None


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


def test_a_random_pooler_takes_no_part() -> None:
    """Where the files lack it, auto falls back to the CLS token, if there is one."""
    missing = {"vit.pooler.dense.weight"}
    assert settle_pooling(CHECKPOINT, with_cls(), missing, "auto") == "cls"
    assert settle_pooling(CHECKPOINT, with_cls(), set(), "auto") == "auto"
    assert settle_pooling(CHECKPOINT, without_cls(), missing, "mean") == "mean"
    with pytest.raises(SpecError, match=r"no CLS token to take\. Give pooling=mean$"):
        settle_pooling(CHECKPOINT, without_cls(), missing, "auto")
    with pytest.raises(SpecError, match="or pooling=pooler"):
        settle_pooling(CHECKPOINT, without_cls(), set(), "cls")
