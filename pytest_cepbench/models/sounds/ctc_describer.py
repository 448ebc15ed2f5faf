"""Describer of speech by connectionist temporal classification (CTC): wav2vec 2.0, HuBERT, WavLM.

The likeliest token of each frame is taken (greedy); repeats and blanks go as the tokenizer says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_cepbench.artifacts import Failure, Sound
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.loaded_checks import (
    check_tokens,
    check_vocabulary,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import input_device, loading
from pytest_cepbench.models.sounds.feature_extractor import (
    SoundModelParams,
    SoundReader,
    Wave,
    check_extractor,
    load_reader,
    load_whole,
    used_outside_training,
)
from pytest_cepbench.models.torch_runtime import quiet


class CtcDescriber:
    """A loaded model that writes speech down; satisfies the Describer Protocol."""

    def __init__(self, model: Any, tokenizer: Any, reader: SoundReader) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._reader = reader

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._model.to(device)

    def describe(
        self, sounds: Sequence[Sound], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure]:
        """Write each sound down; such models read no prompt."""
        del prompt, seeds
        return self._reader.ask(sounds, self._transcribe)

    def _transcribe(self, waves: Sequence[Wave], _: Sequence[int]) -> list[str]:
        import torch

        with quiet(), torch.inference_mode():
            features = self._reader.features(waves).to(input_device(self._model), self._model.dtype)
            tokens = self._model(**features).logits.argmax(dim=-1).cpu()
        texts = [self._tokenizer.decode(row, skip_special_tokens=True) for row in tokens]
        return [text.strip() for text in texts]


def _load(plan: LoadPlan[SoundModelParams]) -> CtcDescriber:
    from transformers import AutoModelForCTC, AutoTokenizer

    checkpoint = plan.checkpoint
    code = {"trust_remote_code": checkpoint.options.trust_remote_code}
    with loading(plan):
        model = load_whole(AutoModelForCTC, plan, used_outside_training, **code)
        with checkpoint.preparation_folder() as folder:
            reader = load_reader(checkpoint, folder, model)
            tokenizer = AutoTokenizer.from_pretrained(folder, **code)
    folder = checkpoint.tokenizer_folder
    check_vocabulary(folder, type(tokenizer).__name__)
    check_tokens(folder, tokenizer, model, tokenizer.added_tokens_decoder)
    if tokenizer.pad_token_id != model.config.pad_token_id:
        raise CheckpointError(
            f"{folder}: the tokenizer's blank is token {tokenizer.pad_token_id}, and the model's "
            f"config.json says {model.config.pad_token_id} (pad_token_id): the tokenizer is not "
            "the one of these weights. Save the one that the model was trained with"
        )
    take_weights(checkpoint, {"": model})
    return CtcDescriber(model, tokenizer, reader)


ADAPTER = adapter(
    "transformers-ctc-describer/1",
    ("torch", "transformers"),
    SoundModelParams,
    _load,
    check=check_extractor,
)
