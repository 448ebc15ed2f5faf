"""Drawing with Janus: a head of its own over a codebook, guided by rows whose prompt is padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber
from pytest_cepbench.models.unified.image_decoder import (
    TokenSampler,
    channels_first,
    configured,
    only,
)

if TYPE_CHECKING:
    import torch


class JanusPainter:
    """Draws images of the size that the checkpoint was made for.

    settings: of `drawing_settings`. Raises CheckpointError where the parts that draw do not fit.
    """

    chats = True
    by_size = False

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedDescriber, settings: Mapping[str, Any]
    ) -> None:
        self._model = loaded.model
        self._processor = loaded.processor
        self._settings = settings
        config = loaded.model.config
        self._config = _generation_config(checkpoint, loaded)
        codes = config.vq_config.num_embeddings
        scored = loaded.model.model.generation_head.vision_head.out_features
        side = config.vq_config.num_patches
        if codes != scored or side * side != config.vision_config.num_image_tokens:
            msg = (
                f"{checkpoint.path}: the parts that draw do not fit: the head scores {scored} "
                f"image tokens and the codebook has {codes}; "
                f"{config.vision_config.num_image_tokens} are drawn and the decoder takes "
                f"{side * side}. Save config.json and weights again"
            )
            raise CheckpointError(msg)

    def paint(self, prompts: Sequence[str], seeds: Sequence[int]) -> torch.Tensor:
        """See `Painter`."""
        from transformers import DynamicCache

        model, choice = self._model, TokenSampler(self._settings, seeds)
        inputs = self._processor(
            text=list(prompts), generation_mode="image", padding=True, return_tensors="pt"
        ).to(model.device)
        scale = self._settings["guidance_scale"]

        def choose(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            guided, unguided = scores.float().chunk(2)
            guided = unguided + scale * (guided - unguided)
            return only(choice(guided), guided)

        with configured(model, self._config):
            codes = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                generation_mode="image",
                generation_config=self._config,
                logits_processor=_processors(choose),
                # The static cache of its own grows from call to call, and rounding with it.
                past_key_values=DynamicCache(config=model.config.get_text_config(decoder=True)),
            )
        pixels = channels_first(model.decode_image_tokens(codes)).float().cpu()
        pixels[choice.broken] = float("nan")
        return pixels


def _generation_config(checkpoint: Checkpoint, loaded: LoadedDescriber) -> Any:
    from transformers import GenerationConfig

    stored, tokenizer = loaded.model.generation_config, loaded.tokenizer
    start = getattr(loaded.processor, "image_start_token", None)
    known = tokenizer.get_vocab()
    bos = stored.bos_token_id if stored.bos_token_id is not None else tokenizer.bos_token_id
    if start not in known or bos is None:
        msg = (
            f"{checkpoint.path}: drawing needs a token that starts a text and one that starts an "
            f"image, and the tokenizer has {bos!r} and {start!r} for them. Save the processor that "
            "the model was trained with (processor.save_pretrained)"
        )
        raise CheckpointError(msg)
    pad = stored.pad_token_id if stored.pad_token_id is not None else tokenizer.pad_token_id
    return GenerationConfig(
        do_sample=False,  # `Choice` leaves one token
        guidance_scale=1.0,  # `choose` guides: its own would come after the choice
        bos_token_id=bos,
        pad_token_id=pad,
        eos_token_id=stored.eos_token_id,
        generation_kwargs={"boi_token_id": known[start]},
    )


def _processors(choose: Any) -> Any:
    from transformers import LogitsProcessorList

    return LogitsProcessorList([choose])
