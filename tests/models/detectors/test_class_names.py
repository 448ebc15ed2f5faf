"""The names that a detector of fixed classes is asked by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.classes_detector import ClassNames

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
    """Case and spaces do not decide what is meant, and stay in what is answered."""
    assert names("TV", "Cat").asked(["cat", "Tvmonitor", "tv"]) == {
        1: ("cat",),
        0: ("Tvmonitor", "tv"),
    }


def test_a_name_of_its_own_wins_over_a_synonym() -> None:
    """A checkpoint that tells a mouse from a computer mouse is taken at its word."""
    assert names("mouse", "computer mouse").asked(["computer mouse"]) == {1: ("computer mouse",)}


@pytest.mark.parametrize("query", ["a photo of a cat", "kat", ""])
def test_other_queries_are_refused_with_the_classes(query: str) -> None:
    """A sentence is no class name; the message lists what is."""
    with pytest.raises(RoleError, match=r"plain names: unknown class .* Known: cat, dog"):
        names("cat", "dog").asked(["dog", query])
