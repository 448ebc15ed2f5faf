"""Images that are nearly the same, as an encoder sees it: reported, never left out."""

from __future__ import annotations

from functools import partial

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import RoleRunner, Step
from pytest_cepbench.construction.records import ImageRecord, NearDuplicate, NearDuplicates
from pytest_cepbench.construction.source_images import SourceImages

LIMIT = 0.97
"""Cosine above which two images are reported."""

_MOST_PAIRS = 1000

_BLOCK = 1024  # rows of the matrix of cosines that are in memory at a time


def find_near_duplicates(
    encoder: RoleRunner, source: SourceImages, limit: float = LIMIT
) -> NearDuplicates:
    """Pairs of images whose vectors have a cosine above the limit, the nearest first.

    Raises what the encoder's model raises; an image without a vector is counted.
    """
    records = source.records
    steps = [
        Step(encoder.key("", 0, "image", record.image), 0, partial(_load, source, record))
        for record in records
    ]
    results = encoder.ask("encode_images", steps)
    kept = [i for i, result in enumerate(results) if not isinstance(result, Failure)]
    rows = [np.asarray(results[i], dtype=np.float64) for i in kept]
    vectors = np.stack(rows) if rows else np.zeros((0, 1))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    pairs: list[NearDuplicate] = []
    for begin in range(0, len(kept), _BLOCK):
        cosines = vectors[begin : begin + _BLOCK] @ vectors.T
        for row, column in zip(*np.nonzero(cosines > limit), strict=True):
            if column > begin + row:  # each pair once
                first, second = records[kept[begin + row]].image, records[kept[column]].image
                cosine = round(float(min(cosines[row, column], 1.0)), 6)
                pairs.append(NearDuplicate(first, second, cosine))
    pairs.sort(key=lambda pair: (-pair.cosine, pair.first, pair.second))
    return NearDuplicates(
        limit=limit,
        count=len(pairs),
        without_vector=len(records) - len(kept),
        pairs=tuple(pairs[:_MOST_PAIRS]),
    )


def _load(source: SourceImages, record: ImageRecord) -> Image.Image:
    return source.load(record).to_pil()
