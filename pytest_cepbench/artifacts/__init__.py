"""Texts, images, sounds, detections and failures: the immutable parts of chains, their digests."""

from pytest_cepbench.artifacts.image import (
    DECODER,
    ImageArtifact,
    decode_image,
    encode_image,
    read_image,
)
from pytest_cepbench.artifacts.modality import MODALITIES, Artifact, Modality
from pytest_cepbench.artifacts.outcome import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.sound import Sound
from pytest_cepbench.files import canonical_json, digest_bytes, digest_json, digest_text

__all__ = [
    "DECODER",
    "MODALITIES",
    "Artifact",
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
