"""Drawing with Emu3: image tokens are words of its one vocabulary, row after row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber
from pytest_cepbench.models.unified.image_decoder import TokenSampler, configured, only

if TYPE_CHECKING:
    import torch

_LAST = 3
"""Tokens after the last row (end of frame, image and text), which the decoder drops unread."""


class Emu3Painter:
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
        mapping = loaded.model.vocabulary_mapping
        codes, rows = loaded.model.config.vq_config.codebook_size, loaded.embeddings or 0
        tokens = mapping.image_tokens
        if len(tokens) != codes or mapping.eol_token_id is None or max(tokens) >= rows:
            msg = (
                f"{checkpoint.path}: vocabulary_map of config.json names {len(tokens)} image "
                f"tokens and the codebook has {codes}; it must name each, and the token "
                f"<|extra_200|> that ends a row, among the {rows} that the weights know. Save "
                "config.json again"
            )
            raise CheckpointError(msg)
        self._tokens = torch.tensor(tokens, device=loaded.model.device)
        self._end_of_row = int(mapping.eol_token_id)
        ratio, area = settings["image_ratio"], settings["image_area"]
        self._height, self._width = self._processor.calculate_generate_size(
            ratio, area, self._processor.downsample_ratio
        )
        if min(self._height, self._width) < 1:
            msg = f"{checkpoint.path}: image_area={area} at {ratio} is less than one image token"
            raise SpecError(msg)
        stored = loaded.model.generation_config
        self._config = GenerationConfig(
            do_sample=False,  # `Choice` leaves one token
            guidance_scale=settings["guidance_scale"],
            max_new_tokens=self._height * (self._width + 1),
            bos_token_id=stored.bos_token_id,
            pad_token_id=loaded.generation_config.pad_token_id,
        )

    def paint(self, prompts: Sequence[str], seeds: Sequence[int]) -> torch.Tensor:
        """See `Painter`."""
        import torch
        from transformers import LogitsProcessorList

        model, choice = self._model, TokenSampler(self._settings, seeds)
        tokens = self._tokens.to(model.device)
        inputs = self._inputs(prompts)
        unwanted = self._inputs([self._settings["negative_prompt"]] * len(prompts))
        start = inputs["input_ids"].shape[1]

        def choose(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            column = (ids.shape[1] - start) % (self._width + 1)
            if column == self._width:
                ends = torch.full((len(ids),), self._end_of_row, device=scores.device)
                return only(ends, scores)
            return only(tokens[choice(scores[:, tokens])], scores)

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
            image_tokens=drawn, height=self._height, width=self._width
        )
        pixels = pixels.float().cpu()
        pixels[choice.broken] = float("nan")
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
        return {name: inputs[name].to(self._model.device) for name in names}
