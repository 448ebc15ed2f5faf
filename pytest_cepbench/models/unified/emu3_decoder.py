"""Drawing with Emu3: a grid of image tokens of the one vocabulary, and its pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber
from pytest_cepbench.models.device_maps import input_device
from pytest_cepbench.models.unified.image_decoder import TokenSampler, configured, only

if TYPE_CHECKING:
    import torch

_LAST = 3
"""Tokens after the last row (end of frame, image and text), which the decoder drops unread."""


class Emu3Decoder:
    """Draws images of the ratio and area in its settings, rounded to whole tokens.

    settings: of `drawing_settings`. Raises CheckpointError where the vocabulary has not every image
    token, SpecError for a size of no token.
    """

    chats = False
    by_size = True  # smaller images are padded before they are read, and padding changes them

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedDescriber, settings: Mapping[str, Any]
    ) -> None:
        import torch
        from transformers import GenerationConfig

        self._model = loaded.model
        self._processor = loaded.processor
        self._settings = settings
        self._tokens = torch.tensor(_image_tokens(checkpoint, loaded))
        self._end_of_row = int(loaded.model.vocabulary_mapping.eol_token_id)
        ratio, area = settings["image_ratio"], settings["image_area"]
        self._height, self._width = loaded.processor.calculate_generate_size(
            ratio, area, loaded.processor.downsample_ratio
        )
        if min(self._height, self._width) < 1:
            raise SpecError(
                f"{checkpoint.path}: image_area={area} at {ratio} is less than one image token"
            )
        stored = loaded.model.generation_config
        self._config = GenerationConfig(
            do_sample=False,  # `TokenSampler` leaves one token
            guidance_scale=settings["guidance_scale"],
            max_new_tokens=self._height * (self._width + 1),
            bos_token_id=stored.bos_token_id,
            pad_token_id=loaded.generation_config.pad_token_id,
        )

    def draw(self, prompts: Sequence[str], seeds: Sequence[int]) -> torch.Tensor:
        """See `ImageDecoder`."""
        import torch
        from transformers import LogitsProcessorList

        model, sampler = self._model, TokenSampler(self._settings, seeds)
        height, width, tokens = self._height, self._width, self._tokens.to(input_device(model))
        inputs = self._inputs(prompts)
        unwanted = self._inputs([self._settings["negative_prompt"]] * len(prompts))
        start = inputs["input_ids"].shape[1]

        def choose(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            column = (ids.shape[1] - start) % (width + 1)
            if column == width:
                ends = torch.full((len(ids),), self._end_of_row, device=scores.device)
                return only(ends, scores)
            return only(tokens[sampler(scores[:, tokens])], scores)

        with configured(model, self._config):
            output = model.generate(
                **inputs,
                generation_config=self._config,
                logits_processor=LogitsProcessorList([choose]),
                negative_prompt_ids=unwanted["input_ids"],
                negative_prompt_attention_mask=unwanted["attention_mask"],
            )
        drawn = torch.nn.functional.pad(output[:, start:], (0, _LAST))
        pixels: torch.Tensor = model.decode_image_tokens(
            image_tokens=drawn, height=height, width=width
        )
        pixels = pixels.float().cpu()
        pixels[sampler.broken] = float("nan")
        return pixels

    def _inputs(self, prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        inputs = self._processor(
            text=list(prompts),
            return_for_image_generation=True,
            ratio=self._settings["image_ratio"],
            image_area=self._settings["image_area"],
            padding=True,
            return_tensors="pt",
        )
        names = ("input_ids", "attention_mask")
        return {name: inputs[name].to(input_device(self._model)) for name in names}


def _image_tokens(checkpoint: Checkpoint, loaded: LoadedDescriber) -> Sequence[int]:
    """The ids of all image tokens; CheckpointError where the vocabulary has not every one."""
    mapping = loaded.model.vocabulary_mapping
    codes, rows = loaded.model.config.vq_config.codebook_size, loaded.embeddings or 0
    tokens: Sequence[int] = mapping.image_tokens
    if len(tokens) != codes or mapping.eol_token_id is None or max(tokens) >= rows:
        raise CheckpointError(
            f"{checkpoint.path}: vocabulary_map of config.json names {len(tokens)} image "
            f"tokens and the codebook has {codes}; it must name each, and the token "
            f"<|extra_200|> that ends a row, among the {rows} that the weights know. Save "
            "config.json again"
        )
    return tokens
