"""Generators of sounds: text-to-speech and text-to-audio checkpoints of transformers.

VITS makes a wave of a text in one pass, MusicGen and Bark write the tokens of a codec, and SpeechT5
makes a spectrogram of a text and a speaker, of which its vocoder makes a wave. All of them draw
from the global generator, the dropout of SpeechT5's prenet among it, so each text is a call of its
own under its own seed.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, SpecError, few_of
from pytest_cepbench.models.checkpoints import Checkpoint, read_json
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.loaded_checks import (
    check_vocabulary,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import input_device, loading
from pytest_cepbench.models.protocols import SoundLike
from pytest_cepbench.models.sounds.feature_extractor import SoundModelParams, load_whole
from pytest_cepbench.models.spec import check_at_least
from pytest_cepbench.models.torch_runtime import quiet, seeded

_OF_GENERATION = ("do_sample", "guidance_scale", "max_new_tokens")
_OF_VITS = ("speaker_id",)
_OF_SPECTROGRAMS = ("vocoder", "speaker")


@dataclass(frozen=True)
class SoundGeneratorParams(SoundModelParams):
    """Parameters of a generator of sounds, with those of `SoundModelParams`.

    do_sample, guidance_scale: of a model that writes tokens of a codec (MusicGen), as in
        transformers; None is the checkpoint's own setting.
    max_new_tokens: of such a model, which decide how long a sound is (MusicGen: 50 a second).
    speaker_id: of VITS with several speakers, which of them, from 0.
    """

    SOURCES: ClassVar[tuple[str, ...]] = (*SoundModelParams.SOURCES, *_OF_SPECTROGRAMS)

    do_sample: bool | None = None
    guidance_scale: float | None = None
    max_new_tokens: int | None = None
    speaker_id: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "max_new_tokens")
        check_at_least(self, 0, "speaker_id")

    @property
    def given(self) -> dict[str, Any]:
        """The parameters of sounds that the spec gives."""
        values = {name: getattr(self, name) for name in (*_OF_GENERATION, *_OF_VITS)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def decisive(self) -> dict[str, Any]:
        """Those, and the attention where it is given; the rest is the checkpoint's own."""
        given = self.given
        if self.attn_implementation is not None:
            given["attn_implementation"] = self.attn_implementation
        return given

    @property
    def seeded(self) -> bool:
        """All of them draw."""
        return True


@dataclass(frozen=True)
class SoundGenerator:
    """A loaded model that makes sounds; satisfies the Generator Protocol.

    rate: of its sounds, in Hz.
    settings: of each call.
    vocoder, speaker: of a model that makes spectrograms; None for others.
    """

    model: Any
    tokenizer: Any
    rate: int
    settings: Mapping[str, Any]
    vocoder: Any = None
    speaker: Any = None

    @property
    def _longest(self) -> int:
        return int(getattr(self.model.config, "max_text_positions", None) or sys.maxsize)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        for part in filter(None, (self.model, self.vocoder)):
            part.to(device)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[SoundLike | Failure]:
        """A sound of each text. Texts longer than the model reads are cut, see `text_lengths`."""
        import torch

        made: list[SoundLike | Failure] = []
        device = input_device(self.model)
        with quiet(), torch.inference_mode():
            for text, seed in zip(texts, seeds, strict=True):
                inputs = self.tokenizer([text], return_tensors="pt")
                inputs = {name: value[:, : self._longest] for name, value in inputs.items()}
                if not inputs["input_ids"].numel():
                    made.append(Failure("bad-sound", "the model knows no sign of the text"))
                    continue
                with seeded([device], seed):
                    wave = self._wave({name: v.to(device) for name, v in inputs.items()})
                samples = wave.float().cpu().numpy()
                # (1, channels, frames) of a codec, (1, frames) or (frames,) of a vocoder.
                made.append((samples.reshape(-1, samples.shape[-1]).mean(axis=0), self.rate))
        return made

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Tokens of each text, and the most that are read; see `CountsTokens`."""
        with quiet():
            return [len(self.tokenizer(text)["input_ids"]) for text in texts], self._longest

    def _wave(self, inputs: Mapping[str, Any]) -> Any:
        if self.vocoder is not None:
            speaker = self.speaker.to(input_device(self.model), self.model.dtype)
            return self.model.generate_speech(inputs["input_ids"], speaker, vocoder=self.vocoder)
        if "generation_config" in self.settings:
            return self.model.generate(**inputs, **self.settings)
        return self.model(**inputs, **self.settings).waveform


def _makes_spectrograms(checkpoint: Checkpoint) -> bool:
    return "speech_decoder_postnet_layers" in checkpoint.config


def _check(plan: LoadPlan[SoundGeneratorParams]) -> None:
    """Raise SpecError for parameters that the checkpoint has no use for, or lacks."""
    config, options = plan.checkpoint.config, plan.checkpoint.options
    if _makes_spectrograms(plan.checkpoint):
        use: tuple[str, ...] = _OF_SPECTROGRAMS
        if lacking := [name for name in use if getattr(options, name) is None]:
            raise SpecError(
                f"model spec {plan.spec.text!r}: {plan.checkpoint.what} makes spectrograms of a "
                f"text in the voice of a speaker: add {' and '.join(lacking)}, the folder of its "
                "vocoder (SpeechT5HifiGan) and the file of a speaker's embedding (numpy.save)"
            )
    else:
        use = _OF_VITS if "upsample_rates" in config else _OF_GENERATION
    given = {*plan.params.given, *(n for n in _OF_SPECTROGRAMS if getattr(options, n) is not None)}
    if useless := sorted(given - set(use)):
        raise SpecError(
            f"model spec {plan.spec.text!r}: {plan.checkpoint.what} has no use for "
            f"{few_of(useless)}; it takes {', '.join(use)}"
        )


def _load(plan: LoadPlan[SoundGeneratorParams]) -> SoundGenerator:
    import transformers

    checkpoint = plan.checkpoint
    code: dict[str, Any] = {"trust_remote_code": checkpoint.options.trust_remote_code}
    spectrograms = _makes_spectrograms(checkpoint)
    auto = "AutoModelForTextToSpectrogram" if spectrograms else "AutoModelForTextToWaveform"
    vocoder = speaker = None
    with loading(plan):
        model = load_whole(getattr(transformers, auto), plan, **code)
        with checkpoint.preparation_folder() as folder:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **code)
        if spectrograms:
            vocoder, speaker = _voice(plan, model)
    check_vocabulary(checkpoint.tokenizer_folder, type(tokenizer).__name__)
    take_weights(checkpoint, {"": model, "vocoder": vocoder})
    config = model.config if vocoder is None else vocoder.config
    places = (config, getattr(config, "audio_encoder", None))
    rates = [getattr(place, "sampling_rate", None) for place in places]
    rates.append(getattr(getattr(model, "generation_config", None), "sample_rate", None))  # Bark's
    rate = next((int(rate) for rate in rates if rate), None)
    if rate is None:
        raise CheckpointError(f"{checkpoint.path}: its configuration states no sampling_rate")
    settings: dict[str, Any] = {}
    if vocoder is None and model.can_generate():
        config = settings["generation_config"] = copy.deepcopy(model.generation_config)
        for name, value in plan.params.given.items():
            setattr(config, name, value)
        if plan.params.max_new_tokens is not None:
            config.max_length = None
    elif plan.params.speaker_id is not None:
        settings["speaker_id"] = plan.params.speaker_id
    return SoundGenerator(model, tokenizer, rate, settings, vocoder, speaker)


def _voice(plan: LoadPlan[SoundGeneratorParams], model: Any) -> tuple[Any, Any]:
    """The vocoder, and the (1, dimension) embedding of the speaker."""
    import torch
    from transformers import SpeechT5HifiGan

    places = {part.name: part.path for part in plan.checkpoint.parts}
    folder, file = places["vocoder"], places["speaker"]
    own = Checkpoint(folder, "transformers", "vocoder", (), read_json(folder / "config.json"))
    vocoder = load_whole(SpeechT5HifiGan, replace(plan, checkpoint=own))
    bins, taken = model.config.num_mel_bins, vocoder.config.model_in_dim
    if bins != taken:
        raise CheckpointError(
            f"{folder}: the vocoder takes spectrograms of {taken} bins, and the model makes {bins}"
        )
    try:
        values = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(
            f"{file}: expected the embedding of a speaker, as numpy.save writes it ({error})"
        ) from error
    size = model.config.speaker_embedding_dim
    if values.size != size or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise CheckpointError(
            f"{file}: expected {size} finite numbers, the embedding of a speaker, found "
            f"{values.shape} {values.dtype}"
        )
    return vocoder, torch.from_numpy(values.reshape(1, size).astype(np.float32))


ADAPTER = adapter(
    "transformers-sound-generator/1",
    ("torch", "transformers"),
    SoundGeneratorParams,
    _load,
    check=_check,
)
