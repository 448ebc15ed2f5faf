"""What a prompt asks for: its clauses from metadata and back, and the queries for a detector."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Detection, Detections
from pytest_cepbench.metrics.geneval import COLORS
from pytest_cepbench.metrics.geneval_prompts import (
    RELATIONS,
    TASKS,
    Clause,
    DetectorQuery,
    Exclusion,
    Position,
    Prompt,
    QueryStyle,
    objects_by_class,
    parse_prompt,
    prompt_metadata,
    queries,
)

DOG = {"class": "dog", "count": 1}
BOX = (0.0, 0.0, 10.0, 10.0)

NAMES = st.sampled_from(["dog", "wine glass", "tv"])


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """Any prompt, also ones that no task of the suite has."""
    include: list[Clause] = []
    for index in range(draw(st.integers(1, 4))):
        place = None
        if index and draw(st.booleans()):
            place = Position(draw(st.sampled_from(RELATIONS)), draw(st.integers(0, index - 1)))
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
        "position", (Clause("teddy bear"), Clause("dog", position=place))
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"include": [DOG]}, r"^tag: missing; one of single_object, "),
        ({"tag": "size", "include": [DOG]}, r"^tag: unknown task 'size'"),
        ({"tag": ["counting"], "include": [DOG]}, r"^tag: unknown task "),
        ({"tag": "colors"}, r"^include: a list of clauses is expected, missing"),
        ({"tag": "colors", "include": []}, r"^include: at least one clause is expected"),
        ({"tag": "colors", "include": DOG}, r"^include: a list of clauses is expected, got"),
        ({"tag": "colors", "include": ["dog"]}, r"^include\[0\]: an object with the fields"),
        ({"tag": "colors", "include": [{"count": 1}]}, r"^include\[0\]: class: missing"),
        ({"tag": "colors", "include": [{"class": "dog"}]}, r"^include\[0\]: count: missing"),
        ({"tag": "colors", "include": [DOG], "exclude": {}}, r"^exclude: a list of clauses"),
        (
            {"tag": "colors", "include": [DOG], "exclude": [DOG | {"color": "red"}]},
            r"^exclude\[0\]: unknown field 'color'",
        ),
        (
            {"tag": "colors", "include": [DOG], "exclude": [DOG | {"count": 0}]},
            r"^exclude\[0\]: count: a whole number from 1 is expected, got 0",
        ),
    ],
)
def test_metadata_that_is_none_is_refused(metadata: dict[str, Any], message: str) -> None:
    """The field is named."""
    with pytest.raises(ValueError, match=message):
        parse_prompt(metadata)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class": " "}, "class: the name of a class is expected, got ' '"),
        ({"class": 3}, "class: the name of a class is expected, got 3"),
        ({"count": 0}, "count: a whole number from 1 is expected, got 0"),
        ({"count": -2}, "count: a whole number from 1 is expected, got -2"),
        ({"count": 1.0}, "count: a whole number from 1 is expected, got 1.0"),
        ({"count": "1"}, "count: a whole number from 1 is expected, got '1'"),
        ({"count": True}, "count: a whole number from 1 is expected, got True"),
        ({"color": ""}, "color: the name of a color is expected, got ''"),
        ({"color": ["red"]}, "color: the name of a color is expected"),
        ({"colour": "red"}, "unknown field 'colour'. Did you mean 'color'?"),
        ({"position": "left of"}, "position: [relation, index of a clause] is expected"),
        ({"position": ["left of"]}, "position: [relation, index of a clause] is expected"),
        ({"position": {"left of": 0}}, "position: [relation, index of a clause] is expected"),
        ({"position": ["left", 0]}, "position: unknown relation 'left'"),
        ({"position": ["left of", "0"]}, "position: the index of a clause is a whole number"),
        ({"position": ["left of", False]}, "position: the index of a clause is a whole number"),
        ({"position": ["left of", -1]}, "position: the index of a clause is a whole number"),
        ({"position": ["left of", 1]}, "position: clause 1 is not an earlier one"),
        ({"position": ["left of", 2]}, "position: clause 2 is not an earlier one"),
    ],
)
def test_a_wrong_clause_is_refused(fields: dict[str, Any], message: str) -> None:
    """Clause and field are named: what is misread would be judged by another rule."""
    with pytest.raises(ValueError, match="^" + re.escape(f"include[1]: {message}")):
        parse_prompt({"tag": "position", "include": [DOG, DOG | fields]})


RED_DOG_AND_TV = Prompt(
    "color_attr", (Clause("dog", color="red"), Clause("tv"), Clause("dog", color="blue"))
)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("class", {"dog": DetectorQuery("dog"), "tv": DetectorQuery("tv")}),
        (
            "photo",
            {"a photo of a dog": DetectorQuery("dog"), "a photo of a tv": DetectorQuery("tv")},
        ),
        (
            "colored photo",
            {
                "a photo of a red dog": DetectorQuery("dog", "red"),
                "a photo of a tv": DetectorQuery("tv"),
                "a photo of a blue dog": DetectorQuery("dog", "blue"),
            },
        ),
    ],
)
def test_queries_are_asked_once_each(style: QueryStyle, expected: dict[str, DetectorQuery]) -> None:
    """One for every class, or for every class and color, in the order of the clauses."""
    asked = queries(RED_DOG_AND_TV, style)
    assert asked == expected
    assert list(asked) == list(expected)


def test_what_is_excluded_is_looked_for() -> None:
    """An excluded class not asked for would always pass; an included one is asked for once."""
    prompt = Prompt(
        "counting", (Clause("dog", color="red"),), (Exclusion("cat", 1), Exclusion("dog", 2))
    )
    assert list(queries(prompt, "class")) == ["dog", "cat"]
    assert list(queries(prompt, "colored photo")) == ["a photo of a red dog", "a photo of a cat"]


def test_an_unknown_style_is_refused() -> None:
    """The styles that exist are said."""
    with pytest.raises(ValueError, match=r"unknown query style 'words'\..* Known: class, "):
        queries(RED_DOG_AND_TV, "words")  # type: ignore[arg-type] # that is the point


def test_answers_go_to_the_class_that_was_meant() -> None:
    """Clauses of one class share its detections, each with the color that its query asked for."""
    asked = queries(RED_DOG_AND_TV, "colored photo")
    result = Detections.sort(
        [
            Detection("a photo of a blue dog", 0.9, BOX),
            Detection("a photo of a tv", 0.5, BOX),
            Detection("a photo of a red dog", 0.7, BOX),
        ]
    )
    objects = objects_by_class(result, asked)
    assert {
        name: [(detection.score, detection.color) for detection in some]
        for name, some in objects.items()
    } == {
        "dog": [(0.9, "blue"), (0.7, "red")],
        "tv": [(0.5, None)],
    }


def test_a_color_that_the_detector_tells_is_kept() -> None:
    """A query without a color takes none away."""
    result = Detections((Detection("dog", 0.9, BOX, color="red"),))
    objects = objects_by_class(result, queries(RED_DOG_AND_TV, "class"))
    assert [detection.color for detection in objects["dog"]] == ["red"]


def test_an_answer_to_nothing_is_an_error() -> None:
    """It would vanish from the counts otherwise."""
    result = Detections((Detection("Dog", 0.9, BOX),))
    with pytest.raises(
        ValueError, match=r"answers 'Dog', which was not asked \(asked: 'dog', 'tv'"
    ):
        objects_by_class(result, queries(RED_DOG_AND_TV, "class"))
