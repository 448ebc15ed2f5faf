"""Generators of sounds: text-to-speech and text-to-audio checkpoints of transformers.

VITS makes a wave of a text in one pass, MusicGen and Bark write the tokens of a codec. All of them
draw from the global generator, so each text is a call of its own under its own seed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, SpecError, few_of
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.loaded_checks import (
    check_vocabulary,
    refuse_missing,
    refuse_unused,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import from_pretrained, input_device, loading
from pytest_cepbench.models.checkpoints.parameters import TransformersParams
from pytest_cepbench.models.protocols import SoundLike
from pytest_cepbench.models.spec import Finite, Natural, Positive, given_params
from pytest_cepbench.models.torch_runtime import quiet, seeded

_OF_GENERATION = ("do_sample", "guidance_scale", "max_new_tokens")
_OF_BARK = ("do_sample", "max_new_tokens")
_OF_VITS = ("speaker_id",)


@dataclass(frozen=True)
class SoundGeneratorParams(TransformersParams):
    """Parameters of a generator of sounds, with those of `TransformersParams`.

    allow_unused: leave out tensors that the architecture does not know, instead of refusing them.
    do_sample, guidance_scale: of a model that writes tokens of a codec (MusicGen; Bark has no
        guidance), as in transformers; None is the checkpoint's own setting.
    max_new_tokens: of such a model, which decide how long a sound is (MusicGen, Bark: 50 a second).
    speaker_id: of VITS with several speakers, which of them, from 0.
    """

    allow_unused: bool = False
    do_sample: bool | None = None
    guidance_scale: Finite | None = None
    max_new_tokens: Positive | None = None
    speaker_id: Natural | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The parameters of sounds that the spec gives."""
        return given_params(self, *_OF_GENERATION, *_OF_VITS)

    @property
    def decisive(self) -> dict[str, Any]:
        """Those, and the attention where it is given; the rest is the checkpoint's own."""
        return self.given | given_params(self, "attn_implementation")

    @property
    def seeded(self) -> bool:
        """All of them draw."""
        return True


@dataclass(frozen=True)
class SoundGenerator:
    """A loaded model that makes sounds; satisfies the Generator Protocol.

    rate: of its sounds, in Hz.
    settings: of each call.
    reading: options of the tokenizer; longest: tokens that the model reads, where it is limited.
    """

    model: Any
    tokenizer: Any
    rate: int
    settings: Mapping[str, Any]
    reading: Mapping[str, Any]
    longest: float

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.model.to(device)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[SoundLike | Failure]:
        """A sound of each text; a failure of one without a sign that the model knows, and of one
        that is longer than it reads.
        """
        import torch

        made: list[SoundLike | Failure] = []
        device = input_device(self.model)
        with quiet(), torch.inference_mode():
            for text, seed in zip(texts, seeds, strict=True):
                inputs = self.tokenizer([text], return_tensors="pt", **self.reading)
                tokens = inputs["input_ids"].numel()
                if not tokens or tokens > self.longest:
                    fault = f"the text has {tokens} tokens, and the model reads {self.longest}"
                    fault = fault if tokens else "the model knows no sign of the text"
                    made.append(Failure("bad-sound", fault))
                    continue
                with seeded([device], seed):
                    placed = {name: v.to(device) for name, v in inputs.items()}
                    wave = (
                        self.model.generate(**placed, **self.settings)
                        if self.model.can_generate()
                        else self.model(**placed, **self.settings).waveform
                    )
                samples = wave.float().cpu().numpy()
                # (1, channels, frames) of a codec, (1, frames) of VITS.
                made.append((samples.reshape(-1, samples.shape[-1]).mean(axis=0), self.rate))
        return made


def _check(plan: LoadPlan[SoundGeneratorParams]) -> None:
    """Raise SpecError for parameters that the checkpoint has no use for."""
    config = plan.checkpoint.config
    use: tuple[str, ...] = _OF_VITS if "upsample_rates" in config else _OF_GENERATION
    use = _OF_BARK if config.get("model_type") == "bark" else use
    if useless := sorted(plan.params.given.keys() - set(use)):
        raise SpecError(
            f"model spec {plan.spec.text!r}: {plan.checkpoint.what} has no use for "
            f"{few_of(useless)}; it takes {', '.join(use)}"
        )


def _load(plan: LoadPlan[SoundGeneratorParams]) -> SoundGenerator:
    import transformers

    checkpoint = plan.checkpoint
    with loading(plan):
        model, info = from_pretrained(transformers.AutoModelForTextToWaveform, plan)
        refuse_missing(checkpoint, info["missing_keys"])
        if not plan.params.allow_unused:
            refuse_unused(checkpoint, info["unexpected_keys"])
        with checkpoint.preparation_folder() as folder:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, **checkpoint.options.code
            )
    check_vocabulary(checkpoint.tokenizer_folder, type(tokenizer).__name__)
    take_weights(checkpoint, {"": model})
    parts = ("audio_encoder", "codec_config")  # of MusicGen, of Bark
    places = (model.config, *(getattr(model.config, part, None) for part in parts))
    rates = (getattr(place, "sampling_rate", None) for place in places)
    rate = next((int(rate) for rate in rates if rate), None)
    if rate is None:
        raise CheckpointError(f"{checkpoint.path}: its configuration states no sampling_rate")
    settings: dict[str, Any] = {}
    reading: dict[str, Any] = {}
    longest = math.inf
    if model.config.model_type == "bark":
        stated = getattr(model.generation_config, "semantic_config", None)
        if not isinstance(stated, dict):
            raise CheckpointError(
                f"{checkpoint.path}: expected a generation_config.json with the semantic_config by "
                "which Bark reads texts. Save that of the model it was trained from"
            )
        # As its processor does, which would look for voices too.
        longest = int(stated.get("max_input_semantic_length", 256))
        reading = {
            "padding": "max_length",
            "max_length": longest,
            "add_special_tokens": False,
            "return_token_type_ids": False,
            "return_attention_mask": True,
        }
        # Each of its three parts is told by a keyword, and by no configuration.
        names = {"max_new_tokens": "semantic_max_new_tokens"}
        settings = {names.get(name, name): value for name, value in plan.params.given.items()}
    elif model.can_generate():
        config = settings["generation_config"] = copy.deepcopy(model.generation_config)
        for name, value in plan.params.given.items():
            setattr(config, name, value)
        if plan.params.max_new_tokens is not None:
            config.max_length = None
    elif plan.params.speaker_id is not None:
        settings["speaker_id"] = plan.params.speaker_id
    return SoundGenerator(model, tokenizer, rate, settings, reading, longest)


ADAPTER = adapter("transformers-sound-generator/1", SoundGeneratorParams, _load, check=_check)
