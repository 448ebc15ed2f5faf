"""Drawing with a family that is not known here, where it keeps to transformers' common way.

The common way: the processor and `generate` take `generation_mode="image"`, and
`decode_image_tokens` makes pixels of what comes out. Tokens are drawn from the global generator, so
each drawing is a call of its own under its own seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber
from pytest_cepbench.models.torch_runtime import seeded
from pytest_cepbench.models.unified.image_decoder import channels_first

if TYPE_CHECKING:
    import torch


class PipelineDecoder:
    """Draws as transformers' any-to-any pipeline does.

    settings: of `drawing_settings`. Raises RoleError for a model that makes no images.
    """

    chats = True
    by_size = True

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedDescriber, settings: Mapping[str, Any]
    ) -> None:
        self._model = loaded.model
        self._processor = loaded.processor
        made = getattr(loaded.model, "output_modalities", None) or ("text",)
        if "image" not in made or not hasattr(loaded.model, "decode_image_tokens"):
            msg = (
                f"{checkpoint.path} is a {checkpoint.what}, which makes {' and '.join(made)} and no "
                "images, as the installed transformers has it: it cannot be the generator. Give a "
                "diffusers pipeline, or wrap its own code as python:package.module:factory"
            )
            raise RoleError(msg)
        self._call = {
            name: value
            for name, value in settings.items()
            if name != "prompt_template" and not (name == "top_k" and not value)
        }

    def paint(self, prompts: Sequence[str], seeds: Sequence[int]) -> torch.Tensor:
        """See `Painter`."""
        import torch

        made = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            inputs = self._processor(text=[prompt], generation_mode="image", return_tensors="pt")
            with seeded(self._model.device, seed):
                tokens = self._model.generate(
                    **inputs.to(self._model.device), generation_mode="image", **self._call
                )
            made.append(channels_first(self._model.decode_image_tokens(tokens)).float().cpu())
        return torch.cat(made)
