"""Which images of each pattern are taken: quotas by digest, or the paper's independent draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from pytest_cepbench.artifacts import digest_text

Sampling = Literal["quota", "bernoulli"]
"""quota: so many images of each pattern, the same on every machine. bernoulli: each image of a
pattern of N with the probability per_pattern / N, as MMGenBench drew (3.3)."""

SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)

_UNIT = 16**16


def choose_images(
    labels: Mapping[str, Sequence[str]], per_pattern: int, sampling: Sampling, seed: int
) -> list[str]:
    """The chosen images, sorted by digest.

    labels: digest of an image -> its patterns.
    Raises ValueError unless per_pattern is at least 1.
    """
    if per_pattern < 1:
        raise ValueError(f"at least one image of each pattern is expected, got {per_pattern}")
    members = members_of(labels)
    if sampling == "bernoulli":
        return _draw(members, per_pattern, seed)
    return _fill(labels, members, per_pattern)


def members_of(labels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Pattern -> its images in order of their digests; the rarest pattern first, then by name."""
    members: dict[str, list[str]] = {}
    for image in sorted(labels):
        for pattern in dict.fromkeys(labels[image]):
            members.setdefault(pattern, []).append(image)
    return dict(sorted(members.items(), key=lambda item: (len(item[1]), item[0])))


def expected_size(labels: Mapping[str, Sequence[str]], per_pattern: int) -> float:
    """Images that independent draws take on average: sum over images of 1 - prod(1 - n / N)."""
    members = members_of(labels)
    size = 0.0
    for patterns in labels.values():
        left_out = 1.0
        for pattern in dict.fromkeys(patterns):
            left_out *= 1.0 - min(1.0, per_pattern / len(members[pattern]))
        size += 1.0 - left_out
    return size


def _fill(
    labels: Mapping[str, Sequence[str]], members: Mapping[str, Sequence[str]], quota: int
) -> list[str]:
    """Every pattern gets its first image, then its second, and so on, the rarest one first.

    An image counts for all its patterns. In rounds and not pattern by pattern, since only then a
    larger quota takes all that a smaller one takes.
    """
    chosen: set[str] = set()
    counts = dict.fromkeys(members, 0)
    waiting = {pattern: iter(images) for pattern, images in members.items()}
    for wanted in range(1, quota + 1):
        for pattern, images in waiting.items():
            if counts[pattern] >= wanted:
                continue
            image = next((image for image in images if image not in chosen), None)
            if image is not None:
                chosen.add(image)
                for own in dict.fromkeys(labels[image]):
                    counts[own] += 1
    return sorted(chosen)


def _draw(members: Mapping[str, Sequence[str]], per_pattern: int, seed: int) -> list[str]:
    """Draws by the digest of seed, pattern and image: no image changes the draw of another."""
    chosen: set[str] = set()
    for pattern, images in members.items():
        probability = per_pattern / len(images)
        chosen.update(
            image
            for image in images
            if int(digest_text(f"{seed} {pattern} {image}")[:16], 16) / _UNIT < probability
        )
    return sorted(chosen)
