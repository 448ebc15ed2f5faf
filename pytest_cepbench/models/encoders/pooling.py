"""Which of a vision model's outputs is the vector of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.safe_loading import refuse_missing

if TYPE_CHECKING:
    import torch

POOLINGS = ("auto", "cls", "pooler", "mean")

_CLS_PARAMETERS = ("cls_token", "class_embedding")


def settle_pooling(checkpoint: Checkpoint, model: Any, missing: set[str], wanted: str) -> str:
    """The pooling to use, so that no tensor that is missing from the files takes part.

    A ViT that was saved from a classifier has no pooler, and transformers makes a random one.
    """
    pooler = {name for name in missing if "pooler" in name.split(".")}
    joint = hasattr(model, "get_image_features")
    uses_pooler = joint or wanted == "pooler"
    refuse_missing(checkpoint, missing if uses_pooler else missing - pooler)
    pooling = "cls" if wanted == "auto" and pooler else wanted
    if pooling == "cls" and not _has_cls_token(model):
        msg = (
            f"{checkpoint.path}: {checkpoint.what} has no CLS token to take. Give pooling=mean"
            f"{'' if pooler else ' or pooling=pooler'}"
        )
        raise SpecError(msg)
    return pooling


def _has_cls_token(model: Any) -> bool:
    names = (name.rpartition(".")[2] for name, _ in model.named_parameters())
    return any(name in _CLS_PARAMETERS for name in names)


def pool(checkpoint: Checkpoint, model: Any, output: Any, pooling: str) -> torch.Tensor:
    """(n, dimension) features out of what a model returned, by one of POOLINGS.

    Raises SpecError where the model gives nothing to pool that way.
    """
    if pooling in ("auto", "pooler"):
        pooled = pooled_output(output)
        if pooled is not None:
            return pooled
    hidden = getattr(output, "last_hidden_state", None)
    if hidden is None or pooling == "pooler":
        lacking = "pooled output" if pooling == "pooler" else "token states"
        msg = (
            f"{checkpoint.path}: {checkpoint.what} gives no {lacking}, so pooling={pooling} cannot be "
            "had from it"
        )
        raise SpecError(msg)
    if pooling == "mean":
        # Transformers give (n, tokens, dimension), convolutions (n, dimension, rows, columns).
        mean: torch.Tensor = hidden.mean(dim=1 if hidden.ndim == 3 else (2, 3))
        return mean
    if not _has_cls_token(model):
        msg = (
            f"{checkpoint.path}: {checkpoint.what} has neither a pooled output nor a CLS token. Give "
            "pooling=mean"
        )
        raise SpecError(msg)
    first: torch.Tensor = hidden[:, 0]
    return first


def pooled_output(output: Any) -> Any:
    """The features in what a model returned: older models give a tensor, newer ones an object."""
    if hasattr(output, "detach"):
        return output
    for name in ("image_embeds", "pooler_output"):
        value = getattr(output, name, None)
        if value is not None:
            return value
    return None
