"""Texts, images, sounds, detections and failures: the immutable parts of chains, their digests."""

from typing import Literal

from pytest_cepbench.artifacts.image import (
    DECODER,
    ImageArtifact,
    decode_image,
    encode_image,
    read_image,
)
from pytest_cepbench.artifacts.outcome import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.sound import Sound
from pytest_cepbench.files import canonical_json, digest_bytes, digest_json, digest_text

Modality = Literal["image", "text", "sound"]
"""A kind of artifact that chains are made of."""

__all__ = [
    "DECODER",
    "Detection",
    "Detections",
    "Failure",
    "ImageArtifact",
    "Mask",
    "Modality",
    "Sound",
    "canonical_json",
    "decode_image",
    "digest_bytes",
    "digest_json",
    "digest_text",
    "encode_image",
    "read_image",
]
