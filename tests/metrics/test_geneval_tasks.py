"""The rules on any detections: against the tasks in words, and by their properties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Detection
from pytest_cepbench.metrics.geneval import judge
from pytest_cepbench.metrics.geneval_prompts import (
    GENEVAL,
    MGG_CODE,
    Position,
    Prompt,
    SelectionSettings,
)
from tests.metrics.geneval_scenes import (
    DOG,
    DOG_AND_CAT,
    RED_DOG,
    RED_DOG_BLUE_CAT,
    RIGHT_OF_A_RED_DOG,
    Found,
    counting,
    placed,
    right,
    seen,
)

SCENES = st.lists(
    st.builds(
        seen,
        st.sampled_from(["cat", "dog"]),
        st.floats(0, 1).map(lambda x: round(x, 3)),
        st.integers(0, 300),
        st.integers(0, 300),
        color=st.sampled_from(["red", "blue"]),
    ),
    max_size=6,
    unique_by=lambda detection: detection.score,
)

PROMPTS = st.sampled_from(
    [DOG, DOG_AND_CAT, RED_DOG, RED_DOG_BLUE_CAT, RIGHT_OF_A_RED_DOG, counting(1), counting(2)]
    + [placed(relation) for relation in ("left of", "above")]
)


def _by_class(detections: Sequence[Detection]) -> Found:
    return {
        name: [detection for detection in detections if detection.query == name]
        for name in {detection.query for detection in detections}
    }


@given(PROMPTS, SCENES, st.randoms(use_true_random=False), st.sampled_from([GENEVAL, MGG_CODE]))
def test_the_verdict_does_not_depend_on_the_order_of_detections(
    prompt: Prompt, scene: list[Detection], random: Any, settings: SelectionSettings
) -> None:
    """Nor do the reasons, and a right image has none."""
    outcome = judge(prompt, _by_class(scene), {}, settings)
    random.shuffle(scene)
    assert judge(prompt, _by_class(scene), {}, settings) == outcome
    assert outcome.correct is (not outcome.reasons)


def plain_verdict(prompt: Prompt, scene: Sequence[Detection]) -> bool:
    """The tasks in words, for prompts of one object per clause: the surest of each class."""
    sure = [
        detection
        for detection in scene
        if detection.score > (0.9 if prompt.task == "counting" else 0.3)
    ]
    if prompt.task == "counting":
        return (
            len([detection for detection in sure if detection.query == "dog"])
            == prompt.include[0].count
        )
    best = {
        name: max(
            (detection for detection in sure if detection.query == name),
            key=lambda detection: detection.score,
            default=None,
        )
        for name in ("cat", "dog")
    }
    tops = [best[clause.name] for clause in prompt.include]
    for clause, top in zip(prompt.include, tops, strict=True):
        if top is None or (clause.color and top.color != clause.color):
            return False
    if prompt.task == "position":
        return _is_there(tops[1], tops[0], prompt.include[1].position)
    return True


def _is_there(subject: Detection | None, target: Detection | None, place: Position | None) -> bool:
    assert subject
    assert target
    assert place
    across, down = (
        (subject.box[i] + subject.box[i + 2] - target.box[i] - target.box[i + 2]) / 2
        for i in (0, 1)
    )
    toward = {"left of": -across, "right of": across, "above": -down, "below": down}[place.relation]
    # Both boxes are 20 pixels wide and high, so 4 are the margin.
    return toward - 4 > 0.5 * math.hypot(across, down)


@given(PROMPTS, SCENES)
def test_the_rules_are_the_tasks_in_words(prompt: Prompt, scene: list[Detection]) -> None:
    """On any detections, by an account of the six tasks that shares nothing with the rules."""
    assert right(prompt, _by_class(scene)) is plain_verdict(prompt, scene)
