"""The tables under `[metrics]` in a suite's TOML: what each kind of metric can be told."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Literal

import msgspec

from pytest_cepbench.chains import Modality
from pytest_cepbench.gate.policy import BoundsName, GateName, check_alpha, check_tolerance

ENCODER = "encoder"
"""The role of the encoder that `--encoder` names; further encoders have names of their own."""

Pool = Literal["categories", "samples"]

Parts = Literal["all", "overall"]


class MetricTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Settings that every metric has; what is left out is the suite's or the metric's own.

    kind: which metric it is; the table's name when left out.
    tolerance, anchor_tolerance, gate, bounds: as in `Policy`; the unit is the metric's own.
    weight: of each of its cases when alpha is divided among the cases of a run, over 0.
    pool: whether groups and the whole suite are the unweighted mean of their categories' values
    ("categories") or one value over all their samples, each counted once ("samples").
    parts: whether categories and groups are cases of their own ("all") or only the whole suite.
    """

    kind: str | None = None
    tolerance: float | None = None
    anchor_tolerance: float | None = None
    gate: GateName | None = None
    bounds: BoundsName | None = None
    weight: float | None = None
    pool: Pool | None = None
    parts: Parts | None = None


def number_problems(table: object) -> Iterator[str]:
    """The errors in the numbers of a table of gate settings."""
    checks = {
        "tolerance": check_tolerance,
        "anchor_tolerance": check_tolerance,
        "alpha": check_alpha,
        "weight": _check_weight,
    }
    for field, check in checks.items():
        value = getattr(table, field, None)
        if value is not None:
            try:
                check(value, field)
            except ValueError as error:
                yield str(error)


def _check_weight(value: float, name: str) -> None:
    if not (isfinite(value) and value > 0):
        msg = f"{name} is a number over 0, got {value}"
        raise ValueError(msg)


class SimilarityTable(MetricTable, frozen=True, kw_only=True):
    """gc, s, sim: similarity of one modality's artifacts to their start.

    at: T, the last iteration that counts; the chain's when left out. encoder: the role whose
    vectors are compared. start: which chains, where the suite plays both.
    """

    at: int | None = None
    encoder: str = ENCODER
    start: Modality | None = None


class SetTable(MetricTable, frozen=True, kw_only=True):
    """fid, gc_fid, kid: distance of all artifacts at an iteration from all starts.

    at, start: as in `SimilarityTable`. encoder: a role, or several in order of preference: the
    first whose weights are on this machine is taken, and the metric's label says which.
    """

    at: int | None = None
    encoder: str | list[str] = ENCODER
    start: Modality | None = None


class MappingTable(MetricTable, frozen=True, kw_only=True):
    """mcd, sdr: similarity to the start over all generations, by mapping.

    mappings: name (text-to-text, text-to-image, image-to-image, image-to-text) -> role of the
    encoder that compares; all that the suite's chains have, with `encoder`, when left out.
    """

    mappings: dict[str, str] | None = None


class ComplianceTable(MetricTable, frozen=True, kw_only=True):
    """geneval, mgg: whether what the prompt names is in the image, by GenEval's rules.

    rules: "geneval", or "mgg-code" for what the Telephone Game's released code does instead, in
    which only threshold and position_threshold have a part. Numbers that are left out are those of
    the rules.
    threshold, counting_threshold: least confidence of a detection (exclusive), and that in
    counting.
    max_objects: most detections of a class that are looked at. max_overlap: intersection over union
    above which the less confident of two boxes of a class is dropped; 1 drops none.
    position_threshold: share of the summed sizes that two centers must be apart.
    colors: who tells them: "clip" (zero-shot on crops, by the `color_encoder`), "detector" (one
    that does so by itself), "query" (asked of the detector in words; the only way of "mgg-code").
    color_encoder: the role of the dual encoder that tells colors.
    """

    rules: Literal["geneval", "mgg-code"] = "geneval"
    threshold: float | None = None
    counting_threshold: float | None = None
    max_objects: int | None = None
    max_overlap: float | None = None
    position_threshold: float | None = None
    colors: Literal["clip", "detector", "query"] | None = None
    color_encoder: str = ENCODER


class FailuresTable(MetricTable, frozen=True, kw_only=True):
    """failures: the share of chains that stopped."""
