"""The records of a construction's folder, one JSON object or line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_cepbench.models.binding import BoundRole

FORMAT = 1
"""Version of all records; raised when a field changes its meaning."""


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the source.

    number: of the image in this data set, for ever: the `index` of the frozen table.
    image: digest of its pixels.
    path: relative to the folder of images. same: other files with the same pixels.
    width, height: in pixels.
    """

    v: int = FORMAT
    number: int
    image: str
    path: str
    width: int
    height: int
    same: tuple[str, ...] = ()


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said of an image.

    patterns: their names; of the closed list where there is one.
    reasons: name -> reason.
    dropped: names that are not in the closed list, and count for nothing.
    repaired: whether the first reply could not be read, and the second could.
    failure, detail: kind of failure and a line about it, where there is no annotation.
    reply: the text that could not be read, cut.
    fingerprint, prompt_digest: of the model and of the question; written with the answer, so that
    it is never taken for another model's.
    """

    v: int = FORMAT
    image: str
    description: str = ""
    patterns: tuple[str, ...] = ()
    reasons: Mapping[str, str] = {}
    dropped: tuple[str, ...] = ()
    repaired: bool = False
    failure: str = ""
    detail: str = ""
    reply: str = ""
    fingerprint: str = ""
    prompt_digest: str = ""


class PatternCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How often patterns were named.

    images: that have an annotation. failures: kind -> images that have none.
    annotations: names of all images together.
    example_share: share of these that are examples of the paper's prompt, in [0, 1]; `examples`
    says whether the prompt held them.
    patterns: name -> images, the most frequent first.
    """

    v: int = FORMAT
    images: int
    failures: Mapping[str, int]
    annotations: int
    examples: str
    example_share: float
    patterns: Mapping[str, int]


class PatternShare(msgspec.Struct, frozen=True):
    """Images of a pattern, and how many of them were chosen."""

    images: int
    chosen: int


class ChosenImages(msgspec.Struct, frozen=True, kw_only=True):
    """The images of the set.

    sampling, per_pattern, seed: how they were chosen.
    expected: their number on average, of independent draws; None of quotas.
    images: digests, sorted. patterns: name -> its images.
    """

    v: int = FORMAT
    sampling: str
    per_pattern: int
    seed: int
    expected: float | None
    images: tuple[str, ...]
    patterns: Mapping[str, PatternShare]


class NearDuplicate(msgspec.Struct, frozen=True):
    """Two images whose vectors have a cosine above the limit."""

    first: str
    second: str
    cosine: float


class NearDuplicates(msgspec.Struct, frozen=True, kw_only=True):
    """Images that are nearly the same, as an encoder sees it; none of them is left out.

    limit: of the cosine. count: pairs above it. pairs: the nearest of them.
    without_vector: images that the encoder has no vector of.
    """

    v: int = FORMAT
    limit: float
    count: int
    without_vector: int
    pairs: tuple[NearDuplicate, ...]


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was asked, and with what.

    prompt: as it was sent. prompt_digest: of it.
    """

    role: str
    spec: str
    what: str
    adapter: str
    fingerprint: str
    params: Mapping[str, Any]
    prompt: str
    prompt_digest: str


class ConstructionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder was constructed from; `construction.json`.

    kind: of data set: "patterns". source: the folder of images.
    prompts, examples: of the questions.
    unreadable: path -> why an image was left out.
    models: stage -> the model that was asked in it.
    """

    v: int = FORMAT
    kind: str
    source: str
    prompts: str
    examples: str
    seed: int
    unreadable: Mapping[str, str]
    models: Mapping[str, ModelRecord]


def record_model(bound: BoundRole, prompt: str, prompt_digest: str) -> ModelRecord:
    """The record of a model and its prompt."""
    return ModelRecord(
        role=bound.role,
        spec=bound.spec,
        what=bound.what,
        adapter=bound.adapter,
        fingerprint=bound.fingerprint,
        params=dict(bound.params),
        prompt=prompt,
        prompt_digest=prompt_digest,
    )
