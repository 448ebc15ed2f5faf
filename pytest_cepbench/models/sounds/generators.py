"""Generators of sounds: text-to-speech and text-to-audio checkpoints of transformers.

VITS makes a wave of a text in one pass, MusicGen and Bark write the tokens of a codec. All of them
draw from the global generator, so each text is a call of its own under its own seed.
"""

from __future__ import annotations

import copy
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
_OF_VITS = ("speaker_id",)


@dataclass(frozen=True)
class SoundGeneratorParams(TransformersParams):
    """Parameters of a generator of sounds, with those of `TransformersParams`.

    allow_unused: leave out tensors that the architecture does not know, instead of refusing them.
    do_sample, guidance_scale: of a model that writes tokens of a codec (MusicGen), as in
        transformers; None is the checkpoint's own setting.
    max_new_tokens: of such a model, which decide how long a sound is (MusicGen: 50 a second).
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
    """

    model: Any
    tokenizer: Any
    rate: int
    settings: Mapping[str, Any]

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.model.to(device)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[SoundLike | Failure]:
        """A sound of each text; a failure of one without a sign that the model knows."""
        import torch

        made: list[SoundLike | Failure] = []
        device = input_device(self.model)
        with quiet(), torch.inference_mode():
            for text, seed in zip(texts, seeds, strict=True):
                inputs = self.tokenizer([text], return_tensors="pt")
                if not inputs["input_ids"].numel():
                    made.append(Failure("bad-sound", "the model knows no sign of the text"))
                    continue
                with seeded([device], seed):
                    placed = {name: v.to(device) for name, v in inputs.items()}
                    wave = (
                        self.model.generate(**placed, **self.settings)
                        if "generation_config" in self.settings
                        else self.model(**placed, **self.settings).waveform
                    )
                samples = wave.float().cpu().numpy()
                # (1, channels, frames) of a codec, (1, frames) of VITS.
                made.append((samples.reshape(-1, samples.shape[-1]).mean(axis=0), self.rate))
        return made


def _check(plan: LoadPlan[SoundGeneratorParams]) -> None:
    """Raise SpecError for parameters that the checkpoint has no use for."""
    use = _OF_VITS if "upsample_rates" in plan.checkpoint.config else _OF_GENERATION
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
    places = (model.config, getattr(model.config, "audio_encoder", None))
    rates = [getattr(place, "sampling_rate", None) for place in places]
    rates.append(getattr(getattr(model, "generation_config", None), "sample_rate", None))  # Bark's
    rate = next((int(rate) for rate in rates if rate), None)
    if rate is None:
        raise CheckpointError(f"{checkpoint.path}: its configuration states no sampling_rate")
    settings: dict[str, Any] = {}
    if model.can_generate():
        config = settings["generation_config"] = copy.deepcopy(model.generation_config)
        for name, value in plan.params.given.items():
            setattr(config, name, value)
        if plan.params.max_new_tokens is not None:
            config.max_length = None
    elif plan.params.speaker_id is not None:
        settings["speaker_id"] = plan.params.speaker_id
    return SoundGenerator(model, tokenizer, rate, settings)


ADAPTER = adapter("transformers-sound-generator/1", SoundGeneratorParams, _load, check=_check)
