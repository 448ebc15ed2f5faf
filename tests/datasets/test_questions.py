"""Questions beside the data: read strictly, part of the identity, with control questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.geneval import load_geneval, with_metadata_questions
from pytest_cepbench.datasets.questions import (
    MOST_CONTROLS,
    FactQuestion,
    attach_questions,
    controls_of,
    questions_of,
    with_questions,
)
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.shapes import load_shapes, sample_scene
from pytest_cepbench.datasets.shapes.questions import answer_question
from pytest_cepbench.errors import DatasetError

LINE = {"sample": "a", "id": "1", "question": "Is it red?", "kind": "color", "answer": "yes"}

SAMPLES = tuple(Sample(name, ("all",), text=f"text {name}") for name in "abc")

DATASET = Dataset("made", {"loader": "made"}, SAMPLES)


def write(folder: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """A file of these lines."""
    path = folder / "questions.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def _object(sample: str, name: str) -> dict[str, Any]:
    text = f"Are there any {name} in the image?"
    return {"sample": sample, "id": name, "question": text, "kind": "object", "answer": "yes"}


def test_a_cluster_can_be_named_in_the_place_of_its_samples(tmp_path: Path) -> None:
    """Four images of one prompt have its questions."""
    drawn = tuple(Sample(f"a-{i}", ("all",), text="t", cluster="a") for i in range(4))
    dataset = Dataset("drawn", {}, (*drawn, Sample("b", ("all",), text="u")))
    asked = with_questions(dataset, write(tmp_path, [_object("a", "cats"), _object("b", "dogs")]))
    assert {questions_of(sample)[0].id for sample in asked.samples[:4]} == {"cats"}


NAMES = st.text("abcdefgh", min_size=1, max_size=3)


@given(st.dictionaries(NAMES, st.sets(NAMES, min_size=1, max_size=5), min_size=1, max_size=8))
def test_no_control_is_an_own_question(objects: dict[str, set[str]]) -> None:
    """They are the same for every order of the samples, and at most as many as a metric can ask."""
    asked = [
        (
            Sample(name, ("all",), text="t"),
            [FactQuestion(o, f"Any {o}?", "object", "yes") for o in sorted(own)],
        )
        for name, own in objects.items()
    ]
    known = [own for _, own in asked]
    samples = {s.id: s for s in attach_questions(asked, known)}
    turned = {s.id: s for s in attach_questions(asked[::-1], known[::-1])}
    every = {f"Any {o}?" for own in objects.values() for o in own}
    for name, sample in samples.items():
        foreign = every - {f"Any {o}?" for o in objects[name]}
        controls = controls_of(sample)
        assert set(controls) <= foreign
        assert len(controls) == len(set(controls)) == min(MOST_CONTROLS, len(foreign))
        assert controls == controls_of(turned[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "colour"}, ": unknown kind of fact 'colour'. Did you mean 'color'"),
        ({"answer": None}, ", answer: Expected `str`, got `null`"),
        ({"answer": " "}, ", answer: a text is expected that is not empty"),
        ({"question": "x" * 1001}, ", question: Expected `str` of length <= 1000"),
        ({"question": "half \ud800"}, r": '\\ud800' is half of a surrogate"),
        ({"sample": "d"}, ": sample: the data set has no 'd'"),
        ({"id": "cats"}, ": id: sample 'a' has a question 'cats' already"),
        ({"depends_on": ["dogs"]}, ": depends_on: 'dogs' is no earlier question of sample 'a'"),
        ({"depends_on": ["1"]}, ": depends_on: '1' is no earlier question of sample 'a'"),
        ({"anser": "yes"}, ": Object contains unknown field `anser`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """File, line, field, and what is expected."""
    path = write(tmp_path, [_object("a", "cats"), LINE | change, _object("b", "dogs")])
    with pytest.raises(DatasetError, match=rf"questions\.jsonl, line 2{message}") as raised:
        with_questions(DATASET, path)
    assert "\n" not in str(raised.value)


def test_a_sample_without_a_question_is_named(tmp_path: Path) -> None:
    """It could have no score."""
    path = write(tmp_path, [LINE, _object("b", "dogs")])
    with pytest.raises(DatasetError, match=r"1 of 3 samples have no question, 'c' among them"):
        with_questions(DATASET, path)


def test_of_a_part_of_the_data_other_samples_may_be_named(tmp_path: Path) -> None:
    """Tables give the chosen samples alone, and the file has questions of all."""
    path = write(tmp_path, [LINE, *(_object(name, "dogs") for name in "bcd")])
    assert with_questions(DATASET, path, whole=False).samples


def test_questions_of_genevals_metadata() -> None:
    """Each prompt asks for what its clauses name; colors and places need their objects."""
    asked = with_metadata_questions(load_geneval())
    by_text = {sample.text: questions_of(sample) for sample in asked.samples}
    toaster = by_text["a photo of a brown toaster"]
    assert [(q.text, q.kind, q.answer, q.depends_on) for q in toaster] == [
        ("Is there a toaster in the image?", "object", "yes", ()),
        ("Is the toaster brown?", "color", "yes", ("0",)),
    ]  # fmt: skip
    (counted,) = (q for q in by_text["a photo of two clocks"] if q.kind == "count")
    assert (counted.text, counted.answer) == ("How many clocks are in the image?", "two")
    (placed,) = (
        q for q in by_text["a photo of a dog right of a teddy bear"] if q.kind == "relation"
    )
    assert placed.text == "Is the dog right of the teddy bear?"
    assert len(placed.depends_on) == 2
    assert all(len(controls_of(sample)) == MOST_CONTROLS for sample in asked.samples)


def test_metadata_of_another_form_is_named() -> None:
    """The sentence says what is expected."""
    with pytest.raises(DatasetError, match=r"sample 'a': questions = \"metadata\" makes .*tag"):
        with_metadata_questions(DATASET)


def test_questions_of_generated_scenes() -> None:
    """Every question about every scene is answered as it says, by the scene itself."""
    asked = with_metadata_questions(load_shapes(samples_per_category=4))
    kinds = set()
    for sample in asked.samples:
        for question in questions_of(sample):
            assert answer_question(sample_scene(sample), question.text) == question.answer
            kinds.add(question.kind)
        for control in controls_of(sample):
            assert answer_question(sample_scene(sample), control) == "no"
    assert kinds == {"object", "color", "size", "count", "relation"}
