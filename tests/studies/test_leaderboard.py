"""Leaderboards of runs: paired ranks, directions, clusters, and runs that do not fit together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate import CaseKey, Measurement, record_of
from pytest_cepbench.studies.comparison import (
    MeasuredRun,
    RunCase,
    compare_runs,
    rank_case,
    rank_common_cases,
)
from pytest_cepbench.suites.suite_run import CaseMeasurement

HARD = np.random.default_rng(0).normal(0, 1, 60)
"""What makes a sample hard for all models alike."""


def record(
    scores: Mapping[str, Mapping[str, float]],
    metric: str = "gc",
    part: str = "overall",
    **more: Any,
) -> Measurement:
    """What a run measured in one case of the suite s."""
    fields: dict[str, Any] = {
        "key": CaseKey("s", part, metric),
        "label": metric.upper(),
        "higher_is_better": True,
        "scores": scores,
        "identity": {"samples": "same"},
        "model": {"spec": "m"},
    }
    return record_of(CaseMeasurement.of(**fields | more))


def model(level: float, noise: float = 0.05, **more: Any) -> Measurement:
    """A model: the samples' hardness, its level, and a little of its own."""
    own = np.random.default_rng(round(1000 * level) + 1).normal(0, noise, 60)
    values = HARD + level + own
    return record({"all": {f"{i:02}": v for i, v in enumerate(values.tolist())}}, **more)


def test_pairing_tells_models_apart() -> None:
    """Differences of a tenth are sure although samples differ by one.

    Categories weigh alike: the mean of their means decides, not the number of samples.
    """
    board = rank_case({"a": model(0.0), "b": model(0.1), "c": model(0.2)})

    assert [m.model for m in board.models] == ["c", "b", "a"]
    assert [(m.rank_low, m.rank_high) for m in board.models] == [(1, 1), (2, 2), (3, 3)]
    assert (board.case, board.label, board.units) == ("s/overall/gc", "GC", 60)
    assert [m.difference for m in board.models] == pytest.approx([0, -0.1, -0.2], abs=0.03)
    best, second, _ = board.models
    assert (best.low, best.high) == (None, None)
    assert second.low is not None
    assert second.high is not None
    assert second.low < second.difference < second.high < 0
    few, many = {"x": 1.0, "y": 0.9}, {f"{i}": 0.5 for i in range(20)}
    better = record({"few": few, "many": many})
    worse = record({"few": {"x": 0.4, "y": 0.3}, "many": dict.fromkeys(many, 0.52)})
    board = rank_case({"worse": worse, "better": better})

    assert board.models[0].model == "better"
    assert board.models[1].difference == pytest.approx((0.35 + 0.52) / 2 - (0.95 + 0.5) / 2)
    alone = {name: record({"all": {"x": value}}) for name, value in (("a", 1.0), ("b", 0.5))}
    one = rank_case(alone)
    assert (one.units, one.models[1].low, one.models[1].rank_low) == (0, None, 1)


def measured(name: str, *records: Measurement, **battles: Any) -> MeasuredRun:
    """A run of these cases. battles: of all of them, as of `RunCase`."""
    cases = {r.case: RunCase(r.case, r.value, 0.01, True, r, **battles) for r in records}
    return MeasuredRun(name, name, cases)


def test_what_is_ranked_and_paired() -> None:
    """Where a suite has such a case in every run; else all of its cases are ranked.

    Battles of other questions are not paired: each question that was answered needs a score of its
    battle against the same answers.
    """
    levels = (("a", 0.0), ("b", 0.1))
    whole, parts = (
        [measured(run, *(model(level, part=part) for part in names)) for run, level in levels]
        for names in (("overall", "x"), ("x", "y"))
    )
    assert [board.case for board in rank_common_cases(whole)] == ["s/overall/gc"]
    assert [board.case for board in rank_common_cases(parts)] == ["s/x/gc", "s/y/gc"]
    comparison = compare_runs(whole[0], parts[1], 0.05)
    assert (comparison.only_first, comparison.only_second) == (("s/overall/gc",), ("s/y/gc",))
    even = record({"all": dict.fromkeys("abc", 0.5)}, answers=dict.fromkeys("abc", "0" * 64))
    runs = [
        measured(name, even, opponents="same", won=dict.fromkeys(questions, 0.5))
        for name, questions in (("first", "abc"), ("second", "abc"), ("third", "ab"))
    ]
    first, second = (compare_runs(runs[0], run, 0.05).cases[0] for run in runs[1:])
    assert (first.judgement is None, second.judgement is None) == (False, True)


def test_clusters_are_units() -> None:
    """Ten images of one prompt are one independent sample; where lower is better the smallest value
    is first, and the others are below it. A distance between sets has pseudo-values for blocks of
    samples, and no scores of samples.
    """
    clusters = {f"{i:02}": f"prompt {i // 10}" for i in range(60)}
    more: dict[str, Any] = {"clusters": clusters, "higher_is_better": False}
    board = rank_case({"a": model(0.0, **more), "b": model(0.4, **more)})

    assert board.units == 6
    assert [m.model for m in board.models] == ["a", "b"]
    assert board.models[1].difference == pytest.approx(-0.4, abs=0.05)
    assert (board.models[1].high or 0) < 0
    blocks = {f"block {i}": float(v) for i, v in enumerate(HARD[:10])}

    def distance(level: float) -> Measurement:
        own = {name: value + level for name, value in blocks.items()}
        mean = float(np.mean(list(own.values())))
        return record({"all": {"fid": mean}}, sizes={"all": 100}, blocks={"all": own})

    board = rank_case({"a": distance(0.0), "b": distance(0.5)})
    assert (board.units, board.blocks) == (10, True)
    assert [(m.rank_low, m.rank_high) for m in board.models] == [(1, 1), (2, 2)]


SETS: dict[str, Any] = {"sizes": {"all": 100}, "blocks": {"all": {"0": 1.0, "1": 1.5, "2": 2.0}}}
"""A distance between sets of 100 images, with three blocks of them."""


@pytest.mark.parametrize(
    ("ours", "theirs", "field"),
    [
        (SETS, {"sizes": {"all": 99}}, "sizes"),
        (SETS, {"sizes": {}}, "sizes"),
        (SETS, {"blocks": {"all": {"0": 1.0, "1": 1.5, "3": 2.0}}}, "blocks"),
        (SETS, {"blocks": {"all": {"0": 1.0, "1": 1.5}}}, "blocks"),
        (SETS, {"higher_is_better": False}, "direction"),
        ({"clusters": {"fid": "images"}}, {"clusters": {"fid": "others"}}, "clusters"),
        ({"clusters": {"fid": "images"}}, {"clusters": {}}, "clusters"),
    ],
)
def test_runs_with_other_units(ours: dict[str, Any], theirs: dict[str, Any], field: str) -> None:
    """What they are paired by is compared too, although they call themselves alike."""
    a = record({"all": {"fid": 1.5}}, **ours)
    b = record({"all": {"fid": 2.5}}, **(ours | theirs))
    expected = f"s/overall/gc: first and other were not measured alike ({field} differ): run both"
    for records in ({"first": a, "other": b}, {"first": b, "other": a}):
        with pytest.raises(SpecError, match=re.escape(expected)):
            rank_case(records)


@pytest.mark.parametrize(
    "blocks",
    [
        {},
        {"all": SETS["blocks"]["all"]},
        {"all": SETS["blocks"]["all"], "few": {}},
        {"all": {}, "few": {}},
    ],
)
def test_a_set_without_blocks_has_no_intervals(blocks: dict[str, dict[str, float]]) -> None:
    """In one model or in all: as for the gate, there are no bounds without every set's blocks."""
    scores = {"all": {"fid": 1.5}, "few": {"fid": 3.0}}
    sizes = {"all": 100, "few": 3}
    whole = {"all": SETS["blocks"]["all"], "few": SETS["blocks"]["all"]}
    full = record(scores, sizes=sizes, blocks=whole)
    lacking = record(scores, sizes=sizes, blocks=blocks)
    for records in ((full, lacking), (lacking, full), (lacking, lacking)):
        board = rank_case(dict(zip("ab", records, strict=True)))
        assert board.units == 0
        assert [(m.rank_low, m.rank_high, m.low) for m in board.models] == [(1, 2, None)] * 2


@pytest.mark.parametrize(
    "sizes",
    [(2, 200), (1,) * 10 + (50,), (1, 1, 60), (2,) * 8],
    ids=["2-200", "ten-of-1", "1-1-60", "eight-of-2"],
)
def test_equal_models_are_told_apart_no_more_often_than_promised(sizes: tuple[int, ...]) -> None:
    """In categories of any sizes: 5 % of runs, and three standard errors of 100 runs."""
    rng = np.random.default_rng(3)

    def drawn() -> Measurement:
        return record(
            {
                f"c{k}": {f"{k}-{i}": float(v) for i, v in enumerate(rng.normal(0, 0.1, size))}
                for k, size in enumerate(sizes)
            }
        )

    apart = 0
    for _ in range(100):
        models = rank_case({"a": drawn(), "b": drawn(), "c": drawn()}).models
        apart += any((m.rank_low, m.rank_high) != (1, 3) for m in models)
    assert apart <= 100 * 0.05 + 3 * (100 * 0.05 * 0.95) ** 0.5
