"""The check of an encoder: by how much known distortions of the starts move the score."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.studies.doctor.diagnosis import (
    TWICE,
    Cell,
    Check,
    CheckTable,
    Comparison,
    Finding,
    MeasuredSuite,
    Vector,
    check_of,
    distances,
    encode,
)

A = TypeVar("A", ImageArtifact, str)

FAINT_BLUR, MIDDLE_BLUR, STRONG_BLUR = 1 / 256, 1 / 64, 1 / 16
"""Standard deviations of the blurs, as shares of the image's shorter side."""

CROP_SIDE = 0.7
"""Of each side: what the crop keeps, about half of the area, brought back to the image's size."""

COVERED_SIDE = 1 / 3
"""Of each side: what the covered region takes, a ninth of the area."""

SAME = 1e-6
"""Cosines nearer to 1 are those of equal vectors, but for rounding."""

_HALF = 0.5  # of the way to chance: what a faint distortion may move a score

_WORD = re.compile(r"\w[\w'-]*")

Start = tuple[str, Any]
"""Digest of a start, and what the encoder takes: a Pillow image or a text."""


# -- the distortions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distortion(Generic[A]):
    """One distortion. Gives the same result everywhere, up to the resampling of Pillow.

    name: in tables.
    unnoticed: status where an encoder does not notice it; "pass" for a change that does not matter.
    apply: the distortion as a pure function.
    """

    name: str
    unnoticed: Literal["pass", "remark", "problem"]
    apply: Callable[[A], A]


def blurred(image: ImageArtifact, share: float) -> ImageArtifact:
    """The image under a Gaussian blur. share: its standard deviation, of the shorter side."""
    radius = share * min(image.size)
    return ImageArtifact.from_pil(image.to_pil().filter(ImageFilter.GaussianBlur(radius)))


def cropped(image: ImageArtifact) -> ImageArtifact:
    """The middle of the image, at the size of the whole."""
    width, height = image.size
    across, down = width * (1 - CROP_SIDE) / 2, height * (1 - CROP_SIDE) / 2
    box = (across, down, width - across, height - down)
    made = image.to_pil().resize((width, height), Image.Resampling.BILINEAR, box=box)
    return ImageArtifact.from_pil(made)


def recolored(image: ImageArtifact) -> ImageArtifact:
    """The image with its channels exchanged in turn: red becomes green, green blue, blue red."""
    return ImageArtifact(image.pixels[:, :, [2, 0, 1]])


def region_covered(image: ImageArtifact) -> ImageArtifact:
    """The image without its most detailed region, over which the surroundings are drawn.

    The region is the one of its size with the largest sum of differences between neighboring
    pixels; it is filled by the mean of two interpolations, between the rows above and below it and
    between the columns beside it.
    """
    pixels = image.pixels.astype(np.float64)
    height, width = pixels.shape[:2]
    tall, wide = max(1, round(height * COVERED_SIDE)), max(1, round(width * COVERED_SIDE))
    if tall >= height or wide >= width:
        return image
    top, left = _busiest(pixels, tall, wide)
    filled = pixels.copy()
    region = (slice(top, top + tall), slice(left, left + wide))
    down = _between(
        pixels[top - 1, region[1]] if top else None,
        pixels[top + tall, region[1]] if top + tall < height else None,
        tall,
    )
    across = _between(
        pixels[region[0], left - 1] if left else None,
        pixels[region[0], left + wide] if left + wide < width else None,
        wide,
    ).transpose(1, 0, 2)
    filled[region] = (down + across) / 2
    return ImageArtifact(np.rint(filled).astype(np.uint8))


def _busiest(pixels: npt.NDArray[np.float64], tall: int, wide: int) -> tuple[int, int]:
    """Top and left of the region that holds most detail, the first of equals."""
    height, width = pixels.shape[:2]
    detail = np.zeros((height + 1, width + 1))
    detail[1:height, 1:] += np.abs(np.diff(pixels, axis=0)).sum(axis=2)
    detail[1:, 1:width] += np.abs(np.diff(pixels, axis=1)).sum(axis=2)
    sums = detail.cumsum(axis=0).cumsum(axis=1)
    detail_sums = (
        sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]
    )
    top, left = np.unravel_index(int(detail_sums.round(6).argmax()), detail_sums.shape)
    return int(top), int(left)


def _between(
    first: npt.NDArray[np.float64] | None, last: npt.NDArray[np.float64] | None, steps: int
) -> npt.NDArray[np.float64]:
    """(steps, n, 3) from one line of pixels to another; one alone is repeated."""
    start, end = (last if first is None else first), (first if last is None else last)
    assert start is not None
    assert end is not None
    weight = (np.arange(1, steps + 1) / (steps + 1))[:, None, None]
    mixed: npt.NDArray[np.float64] = (1 - weight) * start + weight * end
    return mixed


def word_dropped(text: str) -> str:
    """The text without its longest word, the first of equals."""
    words = list(_WORD.finditer(text))
    if len(words) < 2:
        return text
    longest = max(words, key=lambda word: len(word[0]))
    return " ".join((text[: longest.start()] + text[longest.end() :]).split())


def words_swapped(text: str) -> str:
    """The text with its two longest different words exchanged, the first of equals."""
    words = sorted(_WORD.finditer(text), key=lambda word: -len(word[0]))
    others = [word for word in words if word[0].lower() != words[0][0].lower()]
    if not others:
        return text
    first, second = sorted((words[0], others[0]), key=lambda word: word.start())
    return (
        text[: first.start()]
        + second[0]
        + text[first.end() : second.start()]
        + first[0]
        + text[second.end() :]
    )


def negated(text: str) -> str:
    """The text denied as a whole."""
    return f"It is not true that {text[:1].lower()}{text[1:]}"


IMAGE_DISTORTIONS: tuple[Distortion[ImageArtifact], ...] = (
    Distortion("faint blur", "pass", lambda image: blurred(image, FAINT_BLUR)),
    Distortion("middle blur", "pass", lambda image: blurred(image, MIDDLE_BLUR)),
    Distortion("strong blur", "problem", lambda image: blurred(image, STRONG_BLUR)),
    Distortion("crop", "problem", cropped),
    Distortion("colors exchanged", "problem", recolored),
    Distortion("region covered", "problem", region_covered),
)
"""Of image starts. Two faint ones, which an encoder may or may not notice, come first."""

TEXT_DISTORTIONS: tuple[Distortion[str], ...] = (
    Distortion("word dropped", "problem", word_dropped),
    Distortion("words swapped", "problem", words_swapped),
    Distortion("negation", "remark", negated),
)
"""Of text starts. Few encoders of texts notice a negation, and captions hold few."""


# -- the check -------------------------------------------------------------------------------------


def sensitivity_name(comparison: Comparison) -> str:
    """The name of the check of an encoder on changed starts."""
    return f"{comparison.encoder} on changed {comparison.kind}s"


def encoder_sensitivity(suite: MeasuredSuite, comparison: Comparison) -> Check:
    """Check how far known distortions of the starts move their similarity, beside the tolerance.

    A distortion that leaves a start as it is, as exchanging the colors of a grey image does, is not
    counted for it. Raises what encoding raises.
    """
    name, kind = sensitivity_name(comparison), comparison.kind
    starts = _starts(suite, comparison)
    runner = suite.runner(comparison.encoder)
    vectors = encode(runner, kind, starts)
    able = [(s, vector) for s, vector in zip(starts, vectors, strict=True) if vector is not None]
    if not able:
        return Check(name, "not done", (f"not one of {len(starts)} {kind}s can be encoded",))
    chance = _chance(able)
    again = encode(suite.second(comparison.encoder), kind, [start for start, _ in able[:TWICE]])
    moved = distances([vector for _, vector in able[:TWICE]], again)
    rows = [_row("none, asked twice", moved, None)]
    findings = _not_repeatable(moved, comparison)
    distortions: Sequence[Distortion[Any]] = (
        IMAGE_DISTORTIONS if kind == "image" else TEXT_DISTORTIONS
    )
    for distortion in distortions:
        changed = [
            (distorted, vector)
            for start, vector in able
            if (distorted := _distorted(distortion, start, comparison)) is not None
        ]
        moved = distances(
            [vector for _, vector in changed],
            encode(runner, kind, [distorted for distorted, _ in changed]),
        )
        rows.append(_row(distortion.name, moved, chance))
        if moved:
            findings += _findings(distortion, fsum(moved) / len(moved), chance, comparison)
    summary = (
        f"every change that matters moves the score by more than {comparison.policy.tolerance:g}"
    )
    head = ("change", "starts", "similarity", "moves the score by", "by chance")
    return check_of(name, findings, summary, CheckTable(head, tuple(rows)))


def _starts(suite: MeasuredSuite, comparison: Comparison) -> list[Start]:
    """The chosen starts, equal ones once."""
    starts: dict[str, Any] = {}
    for sample in suite.chosen(comparison.kind):
        if comparison.kind == "image":
            image = load_seed_image(sample)
            starts[image.digest] = image.to_pil()
        else:
            assert sample.text is not None
            starts[digest_text(sample.text)] = sample.text
    return list(starts.items())


def _distorted(distortion: Distortion[Any], start: Start, comparison: Comparison) -> Start | None:
    """The distorted start; None where it is as before, or a text of which nothing is left."""
    digest, artifact = start
    if comparison.kind == "image":
        image = distortion.apply(ImageArtifact.from_pil(artifact))
        return None if image.digest == digest else (image.digest, image.to_pil())
    text = distortion.apply(artifact)
    return None if text == artifact or not text.strip() else (digest_text(text), text)


def _chance(able: Sequence[tuple[Start, Vector]]) -> float | None:
    """Mean similarity of two different starts; None where there is one start."""
    similarities = [float(a @ b) for (_, a), (_, b) in combinations(able, 2)]
    return fsum(similarities) / len(similarities) if similarities else None


def _row(name: str, moved: Sequence[float], chance: float | None) -> tuple[Cell, ...]:
    drop = fsum(moved) / len(moved) if moved else None
    return (name, len(moved), None if drop is None else 1 - drop, drop, chance)


def _not_repeatable(moved: Sequence[float], comparison: Comparison) -> list[Finding]:
    """The finding on starts that were encoded twice, none where the vectors are equal."""
    drop = fsum(moved) / len(moved) if moved else 0.0
    if drop <= SAME:
        return []
    sentence = f"the same {comparison.kind} encoded twice moves the score by {drop:.6f}"
    advice = (
        f"make the {comparison.encoder} repeatable (evaluation mode, one precision, no sampling): "
        "vectors are stored and never made again, so scores would depend on who made them first"
    )
    return [("problem" if drop >= comparison.policy.tolerance else "remark", sentence, advice)]


def _findings(
    distortion: Distortion[Any], drop: float, chance: float | None, comparison: Comparison
) -> list[Finding]:
    """The finding on a distortion that moves the score so far, if any."""
    tolerance, visible = comparison.policy.tolerance, comparison.visible
    sentence = f"{distortion.name}: moves the score by {drop:.4f}"
    if distortion.unnoticed == "pass":
        if chance is None or drop <= _HALF * (1 - chance):
            return []
        sentence += f", more than half of the way to chance ({chance:.4f})"
        advice = f"use an {comparison.encoder} that looks less at sharpness, or sharper images"
        return [("remark", sentence, advice)]
    if drop < tolerance:
        advice = (
            f"use another {comparison.encoder}, or a smaller tolerance: a checkpoint that makes "
            f"such a mistake in every {comparison.kind} would be held"
        )
        sentence += f", less than the tolerance {tolerance:g}"
        return [
            (distortion.unnoticed, sentence, advice if distortion.unnoticed == "problem" else "")
        ]
    if visible is not None and drop < visible:
        rare = f"{sentence}, and the smallest drop that fails in 80 % of runs is {visible:.4f}"
        return [("remark", rare, "")]
    return []
