"""Texts, images, detections and failures: the immutable parts of chains, and their digests."""

from pytest_cepbench.artifacts.image import (
    DECODER,
    ImageArtifact,
    decode_image,
    encode_image,
    read_image,
)
from pytest_cepbench.artifacts.outcome import Detection, Detections, Failure, Mask
from pytest_cepbench.files import canonical_json, digest_bytes, digest_json, digest_text

__all__ = [
    "DECODER",
    "Detection",
    "Detections",
    "Failure",
    "ImageArtifact",
    "Mask",
    "canonical_json",
    "decode_image",
    "digest_bytes",
    "digest_json",
    "digest_text",
    "encode_image",
    "read_image",
]
