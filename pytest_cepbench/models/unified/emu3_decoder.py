"""Drawing with Emu3: a grid of image tokens of the one vocabulary, and its pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Emu3Grid:
    """The image tokens of a loaded Emu3, and the size of its images.

    tokens: ids of the image tokens, (n,) on the model's device.
    end_of_row: id of the token after each row.
    height, width: of an image, in tokens.
    """

    model: Any
    tokens: torch.Tensor
    end_of_row: int
    height: int
    width: int

    def decode(self, grids: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) pixel values of (n, height * (width + 1)) tokens, ends of rows included."""
        import torch

        tokens = torch.nn.functional.pad(grids, (0, _LAST))
        pixels: torch.Tensor = self.model.decode_image_tokens(
            image_tokens=tokens, height=self.height, width=self.width
        )
        return pixels.float().cpu()


def make_grid(
    checkpoint: Checkpoint, loaded: LoadedDescriber, settings: Mapping[str, Any]
) -> Emu3Grid:
    """The grid of the ratio and area in `drawing_settings`, rounded to whole tokens.

    Raises CheckpointError where the vocabulary has not every image token, SpecError for a size of
    no token.
    """
    import torch

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
    ratio, area = settings["image_ratio"], settings["image_area"]
    height, width = loaded.processor.calculate_generate_size(
        ratio, area, loaded.processor.downsample_ratio
    )
    if min(height, width) < 1:
        msg = f"{checkpoint.path}: image_area={area} at {ratio} is less than one image token"
        raise SpecError(msg)
    ids = torch.tensor(tokens, device=input_device(loaded.model))
    return Emu3Grid(loaded.model, ids, int(mapping.eol_token_id), height, width)


class Emu3Decoder:
    """Draws images of the ratio and area in its settings, rounded to whole tokens.

    settings: of `drawing_settings`. Raises as `make_grid`.
    """

    chats = False
    by_size = True  # smaller images are padded before they are read, and padding changes them

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedDescriber, settings: Mapping[str, Any]
    ) -> None:
        from transformers import GenerationConfig

        self._model = loaded.model
        self._processor = loaded.processor
        self._settings = settings
        self._grid = grid = make_grid(checkpoint, loaded, settings)
        stored = loaded.model.generation_config
        self._config = GenerationConfig(
            do_sample=False,  # `TokenSampler` leaves one token
            guidance_scale=settings["guidance_scale"],
            max_new_tokens=grid.height * (grid.width + 1),
            bos_token_id=stored.bos_token_id,
            pad_token_id=loaded.generation_config.pad_token_id,
        )

    def draw(self, prompts: Sequence[str], seeds: Sequence[int]) -> torch.Tensor:
        """See `ImageDecoder`."""
        import torch
        from transformers import LogitsProcessorList

        model, sampler, grid = self._model, TokenSampler(self._settings, seeds), self._grid
        tokens = grid.tokens.to(input_device(model))
        inputs = self._inputs(prompts)
        unwanted = self._inputs([self._settings["negative_prompt"]] * len(prompts))
        start = inputs["input_ids"].shape[1]

        def choose(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            column = (ids.shape[1] - start) % (grid.width + 1)
            if column == grid.width:
                ends = torch.full((len(ids),), grid.end_of_row, device=scores.device)
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
        pixels = grid.decode(output[:, start:])
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
