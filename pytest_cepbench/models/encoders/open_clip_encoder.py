"""Encoder of open_clip folders (open_clip_config.json, weights beside it): images and texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import file_options
from pytest_cepbench.models.checkpoints.wrapped_names import unwrapped
from pytest_cepbench.models.encoders.vectors import EncoderParams, LoadedEncoder, to_pixels
from pytest_cepbench.models.load_plan import Adapter, LoadPlan
from pytest_cepbench.models.safe_loading import loading, take_weights
from pytest_cepbench.models.torch_runtime import to_torch_dtype

# The order in which open_clip 3 picks its weights from a folder; other names come after these.
_PREFERRED = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "open_clip_pytorch_model.pth",
    "model.safetensors",
)


def _check_choice(plan: LoadPlan[EncoderParams]) -> None:
    """Raise CheckpointError where open_clip would pass over safetensors for a pickle."""
    folder = plan.checkpoint.path
    names = [path.name for path in folder.iterdir()]
    safe = [name for name in names if name.endswith(".safetensors")]
    chosen = next((name for name in _PREFERRED if name in names), None)
    if safe and chosen is not None and not chosen.endswith(".safetensors"):
        raise CheckpointError(
            f"{folder}: open_clip would read the pickled {chosen} and not {safe[0]}. Remove the "
            f"one that is not meant, or rename {safe[0]} to {_PREFERRED[0]}"
        )


def _load(plan: LoadPlan[EncoderParams]) -> LoadedEncoder:
    import open_clip

    with loading(plan), unwrapped(plan.checkpoint, file_options(plan.spec)) as whole:
        name = f"local-dir:{whole.path}"
        # Loads strictly: a tensor that is missing is an error.
        model, transform = open_clip.create_model_from_pretrained(name)
        tokenizer = open_clip.get_tokenizer(name)
        model = model.to(device=plan.device, dtype=to_torch_dtype(plan.dtype)).eval()
    take_weights(plan.checkpoint, {"": model})
    return LoadedEncoder(
        plan.checkpoint,
        model,
        lambda images: model.encode_image(to_pixels(plan, transform, images)),
        lambda texts: model.encode_text(tokenizer(list(texts)).to(plan.device)),
        partial(_count_tokens, tokenizer),
    )


def _count_tokens(tokenizer: Any, texts: Sequence[str]) -> tuple[list[int], int]:
    if hasattr(tokenizer, "sot_token_id"):  # open_clip's own, which adds a start and an end
        lengths = [len(tokenizer.encode(text)) + 2 for text in texts]
    else:
        cleaned = [tokenizer.clean_fn(text) for text in texts]
        whole = tokenizer.tokenizer(cleaned)["input_ids"] if texts else []
        lengths = [len(tokens) for tokens in whole]
    return lengths, int(tokenizer.context_length)


ADAPTER = Adapter(
    "open_clip-encoder/1", ("torch", "open_clip"), EncoderParams, _load, check=_check_choice
)
