"""Which candidates are kept, thresholds to limits, and which class a query names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.classes_detector import ClassNames
from pytest_cepbench.models.detectors.transformers_detector import (
    CandidateBoxes,
    keep,
)

NAMES = {0: ("cat",), 1: ("dog",)}


EDGES = st.integers(0, 20)


BOXES = st.builds(
    lambda x, y, width, height: (float(x), float(y), float(x + width), float(y + height)),
    EDGES, EDGES, EDGES, EDGES,
)  # fmt: skip


ROWS = st.lists(st.tuples(BOXES, st.sampled_from((0.1, 0.3, 0.5, 0.9)), st.integers(0, 2)))


def candidates(rows: list[tuple[tuple[float, ...], float, int]]) -> CandidateBoxes:
    """Candidates of (box, score, label) rows."""
    boxes = np.array([box for box, _, _ in rows], np.float64).reshape(-1, 4)
    scores = np.array([score for _, score, _ in rows], np.float64)
    return CandidateBoxes(boxes, scores, np.array([label for _, _, label in rows], np.int64))


def kept(rows: list[tuple[tuple[float, ...], float, int]], **rules: Any) -> Detections:
    """What is kept where nothing is wrong."""
    detections = keep(candidates(rows), NAMES, **rules)
    assert isinstance(detections, Detections)
    return detections


def plain_overlap(box: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Intersection over union by counting unit squares; boxes have whole-number corners."""

    def squares(box: tuple[float, ...]) -> set[tuple[int, int]]:
        left, top, right, bottom = map(int, box)
        return {(x, y) for x in range(left, right) for y in range(top, bottom)}

    union = squares(box) | squares(other)
    return len(squares(box) & squares(other)) / len(union) if union else 0.0


@given(ROWS, st.sampled_from((0.0, 0.1, 0.3, 0.6)))
def test_kept_is_what_scores_above_the_threshold_and_was_asked_for(
    rows: list[Any], threshold: float
) -> None:
    """Strictly above; most confident first, ties as found; labels not asked for are left out."""
    wanted = [row for row in rows if row[1] > threshold and row[2] in NAMES]
    wanted.sort(key=lambda row: -row[1])
    detections = kept(rows, threshold=threshold).found
    assert [(detection.box, detection.score, (detection.query,)) for detection in detections] == [
        (box, score, NAMES[label]) for box, score, label in wanted
    ]


@given(ROWS, st.sampled_from((0.1, 0.5, 1.0)))
def test_no_two_kept_boxes_of_a_query_overlap_and_each_dropped_one_had_a_better(
    rows: list[Any], nms: float
) -> None:
    """Suppression is greedy by confidence, and never between different queries."""
    pytest.importorskip("torchvision", reason="suppression needs the [models] extra")
    everything = kept(rows, threshold=0.0).found
    survivors = kept(rows, threshold=0.0, nms=nms).found
    for index, detection in enumerate(survivors):
        for other in survivors[:index]:
            assert detection.query != other.query or plain_overlap(detection.box, other.box) <= nms
    for detection in everything:
        if detection not in survivors:
            assert any(
                better.query == detection.query
                and better.score >= detection.score
                and plain_overlap(better.box, detection.box) > nms
                for better in survivors
            )


@given(ROWS, st.integers(1, 3))
def test_limits_keep_the_most_confident(rows: list[Any], most: int) -> None:
    """Of each class it cuts the end of the list and nothing else."""
    everything = kept(rows, threshold=0.0).found
    for query in ("cat", "dog"):
        of_class = [detection for detection in everything if detection.query == query]
        limited = kept(rows, threshold=0.0, most_per_class=most).found
        assert [detection for detection in limited if detection.query == query] == of_class[:most]


@pytest.mark.parametrize("where", ["score", "box", "turned"])
def test_numbers_that_are_none_fail_the_image(where: str) -> None:
    """One NaN among many boxes: the others cannot be trusted, "nothing found" would be a lie."""
    good = candidates([((0, 0, 4, 4), 0.9, 0), ((1, 1, 3, 3), 0.05, 1)])
    boxes: npt.NDArray[Any] = good.boxes.copy()
    scores: npt.NDArray[Any] = good.scores.copy()
    if where == "score":
        scores[1] = np.nan
    elif where == "box":
        boxes[1, 2] = np.inf
    else:
        boxes[1] = (3, 1, 1, 3)
    failure = keep(CandidateBoxes(boxes, scores, good.labels), NAMES, threshold=0.3)
    assert isinstance(failure, Failure)
    assert failure.kind == "bad-boxes"


CHECKPOINT = Checkpoint(Path("m"), "transformers", "Mask2Former", ("detector",), {})


METADATA = Path(__file__).parents[4] / "shared" / "data" / "geneval" / "evaluation_metadata.jsonl"


# The classes of COCO's instances in their order, where they are not named as in GenEval's prompts.
COCO_ELSEWHERE = {
    "computer mouse": "mouse",
    "tv remote": "remote",
    "computer keyboard": "keyboard",
}


PASCAL = COCO_ELSEWHERE | {
    "airplane": "aeroplane",
    "motorcycle": "motorbike",
    "couch": "sofa",
    "tv": "tvmonitor",
    "potted plant": "pottedplant",
    "dining table": "diningtable",
}


def names(*labels: str) -> ClassNames:
    """A checkpoint's classes in this order."""
    return ClassNames(CHECKPOINT, dict(enumerate(labels)))


@pytest.mark.parametrize("renamed", [COCO_ELSEWHERE, PASCAL], ids=["coco", "pascal"])
def test_every_class_of_geneval_is_known(renamed: dict[str, str]) -> None:
    """Each of the benchmark's 80 names means the class of its own, whichever names COCO goes by."""
    if not METADATA.is_file():
        pytest.skip(f"no published prompts at {METADATA}")
    prompts = [json.loads(line) for line in METADATA.read_text(encoding="utf-8").splitlines()]
    asked = sorted({clause["class"] for prompt in prompts for clause in prompt["include"]})
    assert len(asked) == 80
    classes = names(*(renamed.get(name, name) for name in asked))
    assert classes.asked(asked) == {index: (name,) for index, name in enumerate(asked)}


def test_a_query_comes_back_word_for_word() -> None:
    """Case and spaces do not decide what is meant, and stay in what is answered.

    A class under two names answers both, a checkpoint that tells a mouse from a computer mouse is
    taken at its word, and a sentence is no class name.
    """
    assert names("TV", "Cat").asked(["cat", "Tvmonitor", "tv"]) == {
        1: ("cat",),
        0: ("Tvmonitor", "tv"),
    }
    found = keep(candidates([((0, 0, 4, 4), 0.9, 0)]), {0: ("mouse", "pc mouse")}, threshold=0.3)
    assert isinstance(found, Detections)
    assert [detection.query for detection in found.found] == ["mouse", "pc mouse"]
    assert names("mouse", "computer mouse").asked(["computer mouse"]) == {1: ("computer mouse",)}
    for query in ("a photo of a cat", ""):
        with pytest.raises(RoleError, match=r"plain names: unknown class .* Known: cat, dog"):
            names("cat", "dog").asked(["dog", query])
