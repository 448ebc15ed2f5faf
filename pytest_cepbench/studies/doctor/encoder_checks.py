"""The check of an encoder: by how much known distortions of the starts move the score."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.studies.doctor.diagnosis import Cell, Check, CheckTable, worst
from pytest_cepbench.studies.doctor.distortions import (
    IMAGE_DISTORTIONS,
    TEXT_DISTORTIONS,
    Distortion,
)
from pytest_cepbench.studies.doctor.measured_suite import (
    STARTS,
    Comparison,
    Finding,
    MeasuredSuite,
    Vectors,
    cosines_apart,
    distance_of,
    encode,
)

TWICE = 8
"""Inputs that an encoder encodes a second time."""

SAME = 1e-6
"""Cosines nearer to 1 are those of equal vectors, but for rounding."""

_HALF = 0.5  # of the way to chance: what a faint distortion may move a score


def sensitivity_name(comparison: Comparison) -> str:
    """The name of the check of an encoder on changed starts."""
    return f"{comparison.encoder} on changed {comparison.kind}s"


def encoder_sensitivity(measured_suite: MeasuredSuite, comparison: Comparison) -> Check:
    """Check how far known distortions of the starts move their similarity, beside the tolerance.

    A distortion that leaves a start as it is, as exchanging the colors of a grey image does, is not
    counted for it. Raises what encoding raises.
    """
    starts = _starts(measured_suite, comparison)
    runner = measured_suite.runner(comparison.encoder)
    vectors = encode(runner, comparison.kind, starts)
    able = [
        (start, vector) for start, vector in zip(starts, vectors, strict=True) if vector is not None
    ]
    name = sensitivity_name(comparison)
    if not able:
        return Check(
            name, "not done", (f"not one of {len(starts)} {comparison.kind}s can be encoded",)
        )
    chance = _chance(able)
    rows: list[tuple[Cell, ...]] = [_repeated(measured_suite, comparison, able)]
    findings = [_repeatable(rows[0], comparison)]
    distortions: Sequence[Distortion[Any]] = (
        IMAGE_DISTORTIONS if comparison.kind == "image" else TEXT_DISTORTIONS
    )
    for distortion in distortions:
        moved = _moved(measured_suite, comparison, able, distortion)
        rows.append((distortion.name, len(moved), _cosine(moved), _drop(moved), chance))
        if moved:
            findings.append(_judged(distortion, fsum(moved) / len(moved), chance, comparison))
    kept = [finding for finding in findings if finding is not None]
    head = ("change", "starts", "similarity", "moves the score by", "by chance")
    quiet = (
        f"every change that matters moves the score by more than {comparison.policy.tolerance:g}"
    )
    return Check(
        name,
        worst(["pass", *(status for status, _, _ in kept)]),
        tuple(said for _, said, _ in kept) or (quiet,),
        tuple(dict.fromkeys(advice for _, _, advice in kept if advice)),
        (CheckTable(head, tuple(rows)),),
    )


def _starts(measured_suite: MeasuredSuite, comparison: Comparison) -> list[tuple[str, Any]]:
    """Digest and artifact of the chosen starts, equal ones once."""
    artifacts: dict[str, Any] = {}
    for sample in measured_suite.chosen(comparison.kind, STARTS):
        if comparison.kind == "image":
            image = load_seed_image(sample)
            artifacts[image.digest] = image.to_pil()
        else:
            assert sample.text is not None
            artifacts[digest_text(sample.text)] = sample.text
    return list(artifacts.items())


def _chance(able: Sequence[tuple[tuple[str, Any], Vectors]]) -> float | None:
    """Mean similarity of two different starts."""
    matrix = np.stack([vector for _, vector in able])
    similarities = list(cosines_apart(matrix, [digest for (digest, _), _ in able]))
    return fsum(similarities) / len(similarities) if similarities else None


def _repeated(
    measured_suite: MeasuredSuite,
    comparison: Comparison,
    able: Sequence[tuple[tuple[str, Any], Vectors]],
) -> tuple[Cell, ...]:
    """The row of starts that were not changed, encoded a second time."""
    part = able[:TWICE]
    again = encode(
        measured_suite.second(comparison.encoder), comparison.kind, [start for start, _ in part]
    )
    moved = [
        distance_of(vector, other)
        for (_, vector), other in zip(part, again, strict=True)
        if other is not None
    ]
    return ("none, asked twice", len(moved), _cosine(moved), _drop(moved), None)


def _repeatable(row: tuple[Cell, ...], comparison: Comparison) -> Finding | None:
    drop = row[3]
    if not isinstance(drop, float) or drop <= SAME:
        return None
    said = f"the same {comparison.kind} encoded twice moves the score by {drop:.6f}"
    advice = (
        f"make the {comparison.encoder} repeatable (evaluation mode, one precision, no sampling): "
        "vectors are stored and never made again, so scores would depend on who made them first"
    )
    return ("problem" if drop >= comparison.policy.tolerance else "remark"), said, advice


def _moved(
    measured_suite: MeasuredSuite,
    comparison: Comparison,
    able: Sequence[tuple[tuple[str, Any], Vectors]],
    distortion: Distortion[Any],
) -> list[float]:
    """1 - the similarity of each distorted start to its own start, where it changed at all."""
    changed = []
    for (digest, start), vector in able:
        if comparison.kind == "image":
            image = distortion.apply(ImageArtifact.from_pil(start))
            made: tuple[str, Any] = (image.digest, image.to_pil())
        else:
            text = distortion.apply(start)
            made = (digest_text(text), text)
        if made[0] != digest and (comparison.kind == "image" or made[1].strip()):
            changed.append((made, vector))
    encoded = encode(
        measured_suite.runner(comparison.encoder), comparison.kind, [made for made, _ in changed]
    )
    return [
        distance_of(vector, other)
        for (_, vector), other in zip(changed, encoded, strict=True)
        if other is not None
    ]


def _cosine(moved: Sequence[float]) -> float | None:
    return 1 - fsum(moved) / len(moved) if moved else None


def _drop(moved: Sequence[float]) -> float | None:
    return fsum(moved) / len(moved) if moved else None


def _judged(
    distortion: Distortion[Any], drop: float, chance: float | None, comparison: Comparison
) -> Finding | None:
    """The finding on a distortion that moves the score so far; None where there is nothing to say."""
    what, tolerance = distortion.name, comparison.policy.tolerance
    if distortion.unnoticed == "pass":
        if chance is None or drop <= _HALF * (1 - chance):
            return None
        said = f"{what}: moves the score by {drop:.4f}, more than half of the way to chance ({chance:.4f})"
        return (
            "remark",
            said,
            f"use an {comparison.encoder} that looks less at sharpness, or sharper images",
        )
    if drop < tolerance:
        said = f"{what}: moves the score by {drop:.4f}, less than the tolerance {tolerance:g}"
        advice = (
            f"use another {comparison.encoder}, or a smaller tolerance: a checkpoint that makes such "
            f"a mistake in every {comparison.kind} would be held"
        )
        return distortion.unnoticed, said, advice if distortion.unnoticed == "problem" else ""
    if comparison.visible is not None and drop < comparison.visible:
        said = (
            f"{what}: moves the score by {drop:.4f}, and the smallest drop that shows is "
            f"{comparison.visible:.4f}"
        )
        return "remark", said, ""
    return None
