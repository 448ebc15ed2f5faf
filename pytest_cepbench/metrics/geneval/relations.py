"""How one box lies to another: left of, right of, above, below."""

from __future__ import annotations

from math import hypot

from pytest_cepbench.metrics.geneval.requirements import Relation

Box = tuple[float, float, float, float]

_NOWHERE = 1e-3
"""An offset of less than this many pixels along both axes, net of the margin, is no relation."""


def relations(
    subject: Box,
    target: Box,
    *,
    position_threshold: float = 0.1,
    min_offset: float = 0.5,
    in_pixels: bool = False,
) -> frozenset[Relation]:
    """The relations of a box to another: none, one, or two on a diagonal.

    subject, target: left, top, right, bottom in pixels.
    position_threshold: share of the summed widths (heights) that is taken off the centers' offset.
    min_offset: what must be exceeded by the rest of the offset as a share of the centers' whole
    distance. Source: the GenEval evaluator as released.
    in_pixels: compare the rest in pixels with min_offset, as the Telephone Game's released code
    does: it never finds fewer relations between centers a pixel or more apart, and often finds more
    (a box 300 pixels above and 6 to the left is "left of" as well). Its paper means GenEval's rule.
    """
    across = _beyond(subject[0], subject[2], target[0], target[2], position_threshold)
    down = _beyond(subject[1], subject[3], target[1], target[3], position_threshold)
    if abs(across) < _NOWHERE and abs(down) < _NOWHERE:
        return frozenset()
    unit = 1.0 if in_pixels else _distance(subject, target)
    judged: tuple[tuple[Relation, float], ...] = (
        ("left of", -across),
        ("right of", across),
        ("above", -down),
        ("below", down),
    )
    return frozenset(relation for relation, offset in judged if offset / unit > min_offset)


def _beyond(low: float, high: float, target_low: float, target_high: float, share: float) -> float:
    """Offset of the centers along one axis, less the margin; 0 within it."""
    offset = (low + high) / 2 - (target_low + target_high) / 2
    rest = max(abs(offset) - share * ((high - low) + (target_high - target_low)), 0.0)
    return rest if offset > 0 else -rest


def _distance(subject: Box, target: Box) -> float:
    across = (subject[0] + subject[2]) / 2 - (target[0] + target[2]) / 2
    down = (subject[1] + subject[3]) / 2 - (target[1] + target[3]) / 2
    return hypot(across, down)
