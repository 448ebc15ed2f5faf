"""Modalities: the kinds of artifacts that chains are made of, one entry each.

To add one, write its class of artifacts with a digest, enter it here, name it in `Modality`, and
give its encoders a method (`models/roles.py`) and its samples a start (`datasets/sample.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts.image import DECODER, ImageArtifact, decode_image, encode_image
from pytest_cepbench.artifacts.outcome import Failure
from pytest_cepbench.artifacts.sound import Sound, sound_decoder
from pytest_cepbench.errors import ArtifactError, ImageError, ModelError, SoundError

Modality = Literal["image", "text", "sound"]
"""A kind of artifact that chains are made of."""

Artifact = ImageArtifact | Sound
"""An artifact that is kept as a file; texts are plain strings."""


_BRIGHTEST = 2.0  # on average: decoders overshoot 1 here and there, and are clipped


def check_image(value: object) -> ImageArtifact | Failure:
    """A generated image. NaN pixels, an all-black image, an impossible shape and floats far beyond
    [0, 1] are failures.

    An all-black image is what safety checkers and overflowing half-precision decoders give.
    Raises ModelError when it is neither a Pillow image nor an array.
    """
    if isinstance(value, Failure):
        return value
    try:
        if isinstance(value, Image.Image):
            image = ImageArtifact.from_pil(value)
        elif isinstance(value, np.ndarray):
            if value.dtype.kind == "f" and (odd := np.count_nonzero(~np.isfinite(value))):
                why = f"{odd:,} of {value.size:,} pixel values are NaN or infinite"
                return Failure("nan-image", why)
            if value.dtype.kind == "f" and value.size and value.mean() > _BRIGHTEST:
                return Failure("bad-image", f"pixels reach {value.max():.6g}, [0, 1] is expected")
            if value.dtype.kind == "f":  # in [0, 1], rounded as diffusers does
                value = (value.clip(0.0, 1.0) * 255).round().astype(np.uint8)
            image = ImageArtifact(value)
        else:
            raise ModelError(
                "a model returns Pillow images or arrays where it draws, this one returned "
                f"{type(value).__name__}"
            )
    except ImageError as error:
        return Failure("bad-image", str(error))
    if not image.pixels.any():
        return Failure("blank-image", "every pixel is black")
    return image


def check_sound(value: object) -> Sound | Failure:
    """A generated sound. NaN samples, silence and what cannot be a sound are failures.

    Raises ModelError when it is neither a `Sound` nor samples with their rate.
    """
    if isinstance(value, Failure):
        return value
    if not isinstance(value, Sound):
        if not isinstance(value, tuple) or len(value) != 2:
            raise ModelError(
                "a model returns Sound objects or (samples, rate) where it makes sounds, this one "
                f"returned {type(value).__name__}"
            )
        samples, rate = np.asarray(value[0]), value[1]
        if samples.dtype.kind == "f" and not np.isfinite(samples).all():
            return Failure("nan-sound", "samples are NaN or infinite")
        try:
            value = Sound(samples, rate)
        except (SoundError, TypeError, ValueError, OverflowError) as error:
            return Failure("bad-sound", str(error))
    return value if value.samples.any() else Failure("silent-sound", "every sample is zero")


def check_made(value: object) -> Artifact | Failure:
    """What a model made, an image or a sound. Raises ModelError where it is neither."""
    return check_sound(value) if isinstance(value, Sound | tuple) else check_image(value)


@dataclass(frozen=True)
class ModalityEntry:
    """A kind of artifact.

    artifact: its class.
    made: what models make, in the plural, for people.
    content: what its digest covers.
    refusal: raised for what is no such artifact.
    decoder: version of what reads its files, on which remembered digests depend.
    given: an artifact as roles take it.
    encode, decode: to and from the bytes of a file, losslessly; None for texts, which lie in rows.
    suffix: of its files in a store.
    magic: how such a file begins; empty where its codec has several.
    """

    artifact: type
    made: str
    content: str = "characters"
    refusal: type[ArtifactError] = ArtifactError
    decoder: Callable[[], str] = str
    given: Callable[[Any], Any] = lambda artifact: artifact
    encode: Callable[[Any], bytes] | None = None
    decode: Callable[[bytes], Any] | None = None
    suffix: str = ""
    magic: bytes = b""


MODALITIES: Mapping[Modality, ModalityEntry] = {
    "text": ModalityEntry(str, "descriptions"),
    "sound": ModalityEntry(
        Sound,
        "sounds",
        "samples",
        SoundError,
        sound_decoder,
        encode=Sound.to_flac,
        decode=Sound.from_bytes,
        suffix=".flac",
        magic=b"fLaC",
    ),
    "image": ModalityEntry(
        ImageArtifact,
        "drawings",
        "pixels",
        ImageError,
        lambda: DECODER,
        ImageArtifact.to_pil,
        encode_image,
        decode_image,
        ".webp",
    ),
}
"""By name. Images come last: their files have no magic of their own (WebP or PNG)."""

FILED: tuple[Modality, ...] = tuple(name for name, own in MODALITIES.items() if own.suffix)
"""Those whose artifacts are files."""


def modality_of(artifact: object) -> Modality:
    """The kind of an artifact."""
    return next(name for name, own in MODALITIES.items() if isinstance(artifact, own.artifact))


def as_given(artifact: Artifact) -> Any:
    """An artifact as roles take it: a Pillow image, or the sound itself."""
    return MODALITIES[modality_of(artifact)].given(artifact)


def encode_artifact(artifact: Artifact) -> bytes:
    """Lossless bytes of an artifact."""
    encode = MODALITIES[modality_of(artifact)].encode
    assert encode is not None
    return encode(artifact)


def decode_artifact(data: bytes) -> Artifact:
    """The artifact in the bytes of a file. Raises ArtifactError, and UnreadError without memory."""
    own = next(MODALITIES[name] for name in FILED if data.startswith(MODALITIES[name].magic))
    assert own.decode is not None
    artifact: Artifact = own.decode(data)
    return artifact


def kind_of_file(path: Path) -> Modality | None:
    """The kind of artifact that the file of a store holds, by its name; None for other files."""
    return next((name for name in FILED if MODALITIES[name].suffix == path.suffix), None)
