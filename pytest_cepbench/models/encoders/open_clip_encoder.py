"""Encoder of open_clip folders (open_clip_config.json, weights beside it): images and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import file_options
from pytest_cepbench.models.checkpoints.wrapped_names import unwrapped
from pytest_cepbench.models.encoders.vectors import EncoderParams, to_pixels, to_vectors
from pytest_cepbench.models.load_plan import Adapter, LoadPlan
from pytest_cepbench.models.protocols import FloatArray
from pytest_cepbench.models.safe_loading import loading, take_weights
from pytest_cepbench.models.tokenizer_checks import TruncationNotice
from pytest_cepbench.models.torch_runtime import quiet, to_torch_dtype

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


def _load(plan: LoadPlan[EncoderParams]) -> OpenClipEncoder:
    import open_clip

    with loading(plan), unwrapped(plan.checkpoint, file_options(plan.spec)) as whole:
        name = f"local-dir:{whole.path}"
        # Loads strictly: a tensor that is missing is an error.
        model, transform = open_clip.create_model_from_pretrained(name)
        tokenizer = open_clip.get_tokenizer(name)
        model = model.to(device=plan.device, dtype=to_torch_dtype(plan.dtype)).eval()
    take_weights(plan.checkpoint, {"": model})
    return OpenClipEncoder(plan, model, transform, tokenizer)


class OpenClipEncoder:
    """A loaded open_clip model; satisfies the Encoder Protocol."""

    def __init__(
        self, plan: LoadPlan[EncoderParams], model: Any, transform: Any, tokenizer: Any
    ) -> None:
        self._plan = plan
        self._model = model
        self._transform = transform
        self._tokenizer = tokenizer
        self._notice = TruncationNotice(plan.checkpoint.what)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._model.to(device)

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, dimension) float32 joint-space features of RGB images, not normalised."""
        import torch

        with quiet(), torch.inference_mode():
            features = self._model.encode_image(to_pixels(self._plan, self._transform, images))
            return to_vectors(self._plan.checkpoint, features)

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float32 joint-space features of texts, not normalised.

        Texts longer than the model's context are cut, which is said once in a warning.
        """
        import torch

        self._notice.check(*self.text_lengths(texts))
        with quiet(), torch.inference_mode():
            tokens = self._tokenizer(list(texts))
            features = self._model.encode_text(tokens.to(self._plan.device))
            return to_vectors(self._plan.checkpoint, features)

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Tokens of each text, special ones included, and the most that the model reads.

        Runs the tokenizer only.
        """
        tokenizer = self._tokenizer
        if hasattr(tokenizer, "sot_token_id"):  # open_clip's own, which adds a start and an end
            lengths = [len(tokenizer.encode(text)) + 2 for text in texts]
        else:
            with quiet():
                cleaned = [tokenizer.clean_fn(text) for text in texts]
                whole = tokenizer.tokenizer(cleaned)["input_ids"] if texts else []
            lengths = [len(tokens) for tokens in whole]
        return lengths, int(tokenizer.context_length)


ADAPTER = Adapter(
    "open_clip-encoder/1", ("torch", "open_clip"), EncoderParams, _load, check=_check_choice
)
