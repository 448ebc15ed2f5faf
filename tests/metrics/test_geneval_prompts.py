"""GenEval's prompts: metadata, facts, tasks, and which detections the rules look at."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Detection, Detections
from pytest_cepbench.datasets.geneval import load_geneval
from pytest_cepbench.metrics.facts import KINDS
from pytest_cepbench.metrics.geneval import COLORS
from pytest_cepbench.metrics.geneval_prompts import (
    TASKS,
    Clause,
    Exclusion,
    Position,
    Prompt,
    Relation,
    SelectionSettings,
    keep_objects,
    objects_by_class,
    parse_prompt,
    prompt_atoms,
    prompt_metadata,
    queries,
)
from tests.metrics.test_geneval import DOG, counting, many, right, seen


@pytest.mark.parametrize(
    ("prompt", "scores", "expected"),
    [
        (DOG, (0.3,), False),
        (DOG, (0.3000001,), True),
        (DOG, (0.0,), False),
        (counting(2), (0.95, 0.91), True),
        (counting(2), (0.95, 0.9), False),
        (counting(2), (0.95, 0.91, 0.9, 0.5), True),
        (counting(2), (0.95, 0.92, 0.91), False),
        (counting(2), (0.95,), False),
        (counting(2), (), False),
    ],
)
def test_scores_must_exceed_the_threshold(
    prompt: Prompt, scores: tuple[float, ...], expected: bool
) -> None:
    """Strictly; where objects are counted 0.9, for too few and for too many. No more than sixteen
    are looked at: seventeen sure dogs are sixteen, a limit of the rules that is kept.
    """
    assert right(prompt, {"dog": many("dog", *scores)}) is expected
    crowd = {"dog": many("dog", *[0.95] * 17)}
    assert right(counting(16), crowd)
    assert not right(counting(17), crowd)
    assert right(counting(17), crowd, SelectionSettings(max_objects=17))


@pytest.mark.parametrize("beside", [(), (0.9,), (0.4, 0.9), (0.9, 0.4, 0.95, 0.35)])
def test_equally_sure_ones_stay_in_the_order_of_the_detector(beside: tuple[float, ...]) -> None:
    """The same on every machine, whatever else is found: an unstable sort has no fixed first."""
    equal = [seen("dog", 0.6, 100 * place) for place in range(5)]
    others = [seen("dog", score, 1000 + 100 * place) for place, score in enumerate(beside)]
    mixed = [
        detection
        for pair in zip_longest(equal, others)
        for detection in pair
        if detection is not None
    ]
    kept = keep_objects(DOG, {"dog": mixed}, SelectionSettings())["dog"]
    assert [detection for detection in kept if detection.score == 0.6] == equal


def test_boxes_that_overlap_as_much_as_the_limit_are_dropped() -> None:
    """Only below a limit of 1. What stays overlaps by less: the same box twice is one even at 0.99,
    and two at 1.
    """

    def limited(most: float) -> SelectionSettings:
        return SelectionSettings(counting_threshold=0.3, max_overlap=most)

    # Boxes of 20 pixels, 2 apart: 21 * 19 of 2 * 21 * 21 - 21 * 19 is 0.83; 12 apart, 0.27.
    three = {"dog": [seen("dog", 0.9, 100), seen("dog", 0.8, 102), seen("dog", 0.7, 112)]}
    for max_overlap, expected in ((1.0, 3), (0.75, 2), (0.5, 2), (0.05, 1), (0.0, 1)):
        assert right(counting(expected), three, limited(max_overlap))
    result = {"dog": [seen("dog", 0.9), seen("dog", 0.8)]}
    assert right(counting(1), result, limited(0.99))
    assert right(counting(2), result, limited(1.0))
    # 10 by 10 pixels, 5 apart: 50 of 150.
    half = [Detection("dog", 0.9, (0, 0, 9, 9)), Detection("dog", 0.8, (5, 0, 14, 9))]
    assert right(counting(1), {"dog": half}, limited(50 / 150))
    assert right(counting(2), {"dog": half}, limited(0.34))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, r"threshold lies in \[0, 1\], got 1.5"),
        ({"counting_threshold": -0.1}, r"counting_threshold lies in \[0, 1\], got -0.1"),
        ({"max_overlap": float("nan")}, r"max_overlap lies in \[0, 1\], got nan"),
        ({"position_threshold": -1.0}, "position_threshold is not negative, got -1.0"),
        ({"min_offset": float("nan")}, "min_offset is not negative, got nan"),
        ({"max_objects": 0}, "max_objects is at least 1, got 0"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    """Before anything is judged by them."""
    with pytest.raises(ValueError, match=message):
        SelectionSettings(**options)


ONE_DOG: dict[str, Any] = {"class": "dog", "count": 1}
BOX = (0.0, 0.0, 10.0, 10.0)

NAMES = st.sampled_from(["dog", "wine glass", "tv"])


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """Any prompt, also ones that no task of the suite has."""
    include: list[Clause] = []
    for index in range(draw(st.integers(1, 4))):
        place = None
        if index and draw(st.booleans()):
            place = Position(
                draw(st.sampled_from(get_args(Relation))), draw(st.integers(0, index - 1))
            )
        color = draw(st.none() | st.sampled_from(COLORS))
        include.append(Clause(draw(NAMES), draw(st.integers(1, 5)), color, place))
    exclude = draw(st.lists(st.builds(Exclusion, NAMES, st.integers(1, 5)), max_size=2))
    return Prompt(draw(st.sampled_from(TASKS)), tuple(include), tuple(exclude))


@given(prompts())
def test_metadata_says_all_of_a_prompt(prompt: Prompt) -> None:
    """What is written is read back the same."""
    assert parse_prompt(prompt_metadata(prompt)) == prompt


def test_a_published_line_is_understood() -> None:
    """The position target stands first in the published file; the words around it are not read."""
    line = {
        "tag": "position",
        "include": [
            {"class": "teddy bear", "count": 1},
            {"class": "dog", "count": 1, "position": ["right of", 0]},
        ],
        "prompt": "a photo of a dog right of a teddy bear",
    }
    place = Position("right of", 0)
    assert parse_prompt(line) == Prompt(
        "position", (Clause("teddy bear", 1), Clause("dog", 1, position=place))
    )


WRONG_CLAUSES: list[tuple[dict[str, Any], str]] = [
    ({"class": " "}, "include[1].class"),
    ({"count": True}, "include[1].count"),
    ({"color": ""}, "include[1].color"),
    ({"colour": "red"}, "unknown field `colour` - at `$.include[1]`"),
    ({"position": ["left", 0]}, "include[1].position[0]"),
    ({"position": ["left of", -1]}, "include[1].position[1]"),
    ({"position": ["left of", 1]}, "include[1]: position: clause 1 is not an earlier one"),
]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"include": [ONE_DOG]}, "required field `tag`"),
        ({"tag": "size", "include": [ONE_DOG]}, "Invalid enum value 'size' - at `$.tag`"),
        ({"tag": "colors", "include": []}, "length >= 1 - at `$.include`"),
        ({"tag": "colors", "include": [ONE_DOG], "exclude": [ONE_DOG | {"color": "red"}]},
         "unknown field `color` - at `$.exclude[0]`"),
        ({"tag": "colors", "include": [ONE_DOG], "exclude": [ONE_DOG | {"count": 0}]},
         "`int` >= 1 - at `$.exclude[0].count`"),
        *(({"tag": "position", "include": [ONE_DOG, ONE_DOG | clause]}, message)
          for clause, message in WRONG_CLAUSES),
    ],
)  # fmt: skip
def test_metadata_that_is_none_is_refused(metadata: dict[str, Any], message: str) -> None:
    """Clause and field are named: what is misread would be judged by another rule."""
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_prompt(metadata)


RED_DOG_AND_TV = Prompt(
    "color_attr", (Clause("dog", 1, color="red"), Clause("tv", 1), Clause("dog", 1, color="blue"))
)


def test_queries_are_asked_once_each() -> None:
    """One for every class, in the order of the clauses, and of what is excluded, which would always
    pass. An answer to another one is an error, or it would vanish from the counts.
    """
    asked = queries(RED_DOG_AND_TV, "class")
    assert list(asked.items()) == [("dog", "dog"), ("tv", "tv")]
    photos = queries(RED_DOG_AND_TV, "photo")
    assert list(photos.items()) == [("a photo of a dog", "dog"), ("a photo of a tv", "tv")]
    prompt = Prompt(
        "counting", (Clause("dog", 1, color="red"),), (Exclusion("cat", 1), Exclusion("dog", 2))
    )
    assert list(queries(prompt, "class")) == ["dog", "cat"]
    result = Detections((Detection("Dog", 0.9, BOX),))
    with pytest.raises(
        ValueError, match=r"answers 'Dog', which was not asked \(asked: 'dog', 'tv'"
    ):
        objects_by_class(result, asked)


def _atoms(prompt: Prompt) -> list[tuple[str, str]]:
    return [(atom.kind, atom.clause.name) for atom in prompt_atoms(prompt)]


def test_each_task_demands_what_its_clauses_name() -> None:
    """Objects always; number, color and place where the prompt says them. The published prompts
    have atoms of known kinds, at least one each.
    """
    counting = Prompt("counting", (Clause("clock", 2),), (Exclusion("clock", 3),))
    assert _atoms(counting) == [("object", "clock"), ("count", "clock")]
    assert _atoms(Prompt("counting", (Clause("clock", 2),))) == _atoms(counting)
    place = Position("left of", 0)
    position = Prompt("position", (Clause("cat", 1), Clause("dog", 1, position=place)))
    assert _atoms(position) == [("object", "cat"), ("object", "dog"), ("relation", "dog")]
    assert prompt_atoms(position)[-1].target == position.include[0]
    colored = Prompt("color_attr", (Clause("cup", 1, "red"), Clause("cup", 1, "blue")))
    assert _atoms(colored) == [("object", "cup"), ("color", "cup"), ("color", "cup")]
    for sample in load_geneval().samples:
        kinds = {kind for kind, _ in _atoms(parse_prompt(sample.metadata))}
        assert kinds
        assert kinds <= set(KINDS)
