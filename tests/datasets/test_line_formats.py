"""Formats of a JSON object a line: GenEval, GenEval 2, questions beside data, judged battles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.geneval import (
    PUBLISHED_FILE,
    load_geneval,
    load_geneval2,
    with_metadata_questions,
)
from pytest_cepbench.datasets.judged_battles import VERDICT, load_judged_battles
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
from pytest_cepbench.metrics.geneval_prompts import parse_prompt
from tests.datasets.files import put_lines

PUBLISHED_DIGEST = "5c48e0813e812e3c373fa5c8ed07a8f0a483be30272b4427b0559c8048e67c13"
"""SHA-256 of the published `evaluation_metadata.jsonl`."""

SUITE = Path(__file__).parents[2] / "suites" / "judge"


def write(folder: Path, *lines: Mapping[str, Any]) -> Path:
    """A file of these lines, of a name that all loaders know."""
    return put_lines(folder / "geneval2_data.jsonl", lines)


DOG = {"class": "dog", "count": 1}
LINE: dict[str, Any] = {"tag": "single_object", "include": [DOG], "prompt": "a photo of a dog"}


CUPS: dict[str, Any] = {
    "prompt": "two red cups above a table",
    "atom_count": 5,
    "vqa_list": [
        ["How many cups are in the image?", "two"],
        ["Are the cups red?", "Yes"],
        ["Are there any cups in the image?", "Yes"],
        ["Are the cups above the table?", "Yes"],
        ["How many tables are in the image?", "one"],
        ["Are there any tables in the image?", "Yes"],
    ],
    "skills": ["count", "attribute", "object", "position", "count", "object"],
}

ONE_DOG: dict[str, Any] = {
    "prompt": "a dog chasing a ball",
    "atom_count": 3,
    "vqa_list": [
        ["Are there any dogs in the image?", "Yes"],
        ["Is the dog chasing the ball?", "Yes"],
        ["Are there any balls in the image?", "Yes"],
    ],
    "skills": ["object", "verb", "object"],
}

ASKED: dict[str, Any] = {
    "sample": "a",
    "id": "1",
    "question": "Is it red?",
    "kind": "color",
    "answer": "yes",
}

DATASET = Dataset("made", {}, tuple(Sample(name, ("all",), text=f"text {name}") for name in "abc"))


def about(sample: str, name: str) -> dict[str, Any]:
    """A question whether there is something in a sample's pictures."""
    text = f"Are there any {name} in the image?"
    return {"sample": sample, "id": name, "question": text, "kind": "object", "answer": "yes"}


BATTLE: dict[str, Any] = {
    "id": "b/1",
    "category": "b",
    "verdict": "Tie(B)",
    "question": [{"drawing": "one shape : small red circle top left", "jitter": 3}, {"text": "?"}],
    "first": [{"text": "one"}, {"text": "two", "drawing": "no shapes"}],
    "second": [{"drawing": "one shape : large blue cross bottom right"}],
}


READERS: dict[str, tuple[Callable[[Path], object], dict[str, Any], dict[str, Any]]] = {
    "geneval": (load_geneval, LINE, LINE),
    "geneval2": (load_geneval2, ONE_DOG, CUPS),
    "questions": (lambda path: with_questions(DATASET, path), about("a", "cats"), ASKED),
    "battles": (load_judged_battles, BATTLE | {"id": "b/0"}, BATTLE),
}
"""What reads a file, its first line, and another one."""

WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "geneval": [
        ({"tag": "objects"}, r": Invalid enum value 'objects' - at `\$.tag`"),
        ({"include": []}, r": Expected `array` of length >= 1 - at `\$.include`"),
        ({"include": [DOG | {"count": 0}]}, r": Expected `int` >= 1 - at `\$.include\[0\].count`"),
        ({"include": [DOG | {"color": "cyan"}]}, r": include\[0\]: color: 'cyan' is none of red, "),
        ({"include": [DOG | {"position": ["left of", 0]}]}, r": include\[0\]: position: clause 0"),
        ({"include": [DOG | {"class": "\ud800"}]}, r": '\\ud800' is half of a surrogate"),
        ({"prompt": " \n"}, ", prompt: a text is expected that is not empty"),
        ({"index": "a"}, r", index: .* matching regex .*\[0-9\]\{1,5\}"),
        ({"index": True}, ", index: Expected `int | str | null`, got `bool`"),
    ],
    "geneval2": [
        ({"vqa_list": [["Any cups?"]], "skills": ["object"]}, r", vqa_list\[0\]: Expected `array`"),
        (
            {"vqa_list": [["Any cups?", ""]], "skills": ["object"]},
            r", vqa_list\[0\]\[1\]: a text is",
        ),
        ({"vqa_list": []}, ", vqa_list: Expected `array` of length >= 1"),
        ({"skills": ["count"]}, ": skills: one for each of 6 questions is expected, got 1"),
        ({"skills": ["colour"] * 6}, r": skills\[0\]: unknown skill 'colour'"),
        ({"atom_count": 0}, ", atom_count: Expected `int` >= 1"),
        ({"prompt": ""}, ", prompt: a text is expected that is not empty"),
        ({"prompt": "half \udc00"}, r": '\\udc00' is half of a surrogate pair"),
        ({"skilz": []}, ": Object contains unknown field `skilz`"),
    ],
    "questions": [
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
    "battles": [
        ({"verdict": "C"}, ", verdict: .*'C'"),
        ({"models": ["a"]}, ": .*models"),
        ({"first": []}, ": first is empty"),
        ({"question": []}, ": question is empty"),
        ({"category": ""}, ": category is empty"),
        ({"first": [{}]}, ", first: a piece has neither a text nor an image"),
        ({"first": [{"text": 3}]}, r", first\[0\]\.text: .*int"),
        ({"half \ud800": 1}, ": .* half of a surrogate pair"),
        ({"second": [{"drawing": "one circle"}]}, ", second: 'one circle' .* is no drawing"),
        ({"second": [{"drawing": "no shapes", "jitter": -1}]}, ", second: .*is no drawing"),
        (
            {"second": [{"drawing": "no shapes", "image": "a.png"}]},
            ", second: .*image and a drawing",
        ),
        ({"second": [{"image": "../a.png"}]}, ", second: .*leads out of the folder"),
        ({"second": [{"image": "gone.png"}]}, ", second: .*there is no image 'gone.png'"),
        ({"second": [{"image": "/etc/passwd"}]}, ", second: .*is an absolute path"),
    ],
}
"""Format -> changes of the second line, and what is said after the place of that line."""


@pytest.mark.parametrize(
    ("name", "change", "message"), [(name, *row) for name, rows in WRONG.items() for row in rows]
)
def test_a_wrong_line_is_named(
    tmp_path: Path, name: str, change: dict[str, Any], message: str
) -> None:
    """File, line and field, and what is expected, in one line."""
    read, first, second = READERS[name]
    path = write(tmp_path, first, second | change)
    with pytest.raises(DatasetError, match=rf"geneval2_data\.jsonl, line 2{message}") as raised:
        read(path)
    assert "\n" not in str(raised.value)


# -- GenEval and GenEval 2 -------------------------------------------------------------------------


def test_the_built_in_suite_is_there_without_a_path() -> None:
    """553 samples whose ids are their places in the published file, whose rules can be judged."""
    assert sha256(PUBLISHED_FILE.read_bytes()).hexdigest() == PUBLISHED_DIGEST
    dataset = load_geneval()
    assert all(parse_prompt(own.metadata).task == own.categories[0] for own in dataset.samples)
    assert len(dataset.samples) == 553
    assert [sample.id for sample in dataset.samples] == [f"{i:05d}" for i in range(553)]
    assert {task: len(dataset.in_category(task)) for task in dataset.categories} == {
        "single_object": 80,
        "two_object": 99,
        "counting": 80,
        "colors": 94,
        "position": 100,
        "color_attr": 100,
    }


def test_the_identity_tells_prompts_apart(tmp_path: Path) -> None:
    """Another text, another clause or another number of images is another data set."""
    other = LINE | {"prompt": "a dog"}
    strict = LINE | {"exclude": [{"class": "dog", "count": 2}]}
    identities = [load_geneval(write(tmp_path, item)).identity for item in (LINE, other, strict)]
    identities += [load_geneval(write(tmp_path, LINE), images_per_prompt=4).identity]
    identities += [load_geneval().identity]
    assert len({digest_json(dict(item)) for item in identities}) == 5


def test_what_is_no_set_of_prompts_is_refused(tmp_path: Path) -> None:
    """An empty file is not the built-in suite. Options that do not fit, each with what was given:
    GenEval's own file has no detailed captions. A folder without the file says which it lacks.
    """
    with pytest.raises(DatasetError, match=r"has no geneval2_data\.jsonl: give the folder"):
        load_geneval2(tmp_path)
    with pytest.raises(DatasetError, match=r"line 1: Object missing .*`detailed_caption`"):
        load_geneval(write(tmp_path, LINE), captions="detailed")
    path = write(tmp_path)
    for data in (b"", b"\n\n", b"\xef\xbb\xbf"):
        path.write_bytes(data)
        for load, place in ((load_geneval, path), (load_geneval2, tmp_path)):
            with pytest.raises(DatasetError, match="has no prompts"):
                load(place)
    options: list[tuple[dict[str, Any], str]] = [
        ({"captions": "long"}, "'prompt' or 'detailed' is expected, got 'long'"),
        ({"captions": "detailed"}, "built-in GenEval prompts have no detailed captions"),
        ({"images_per_prompt": 0}, r"must be in 1\.\.100, got 0"),
        ({"images_per_prompt": 101}, r"must be in 1\.\.100, got 101"),
    ]
    for own, words in options:
        with pytest.raises(DatasetError, match=words):
            load_geneval(**own)


# -- questions ------------------------------------------------------------------------------------


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


def test_every_sample_has_a_question(tmp_path: Path) -> None:
    """It could have no score without. Tables give the chosen samples alone, and the file has
    questions of all: of a part of the data other samples may be named. A cluster can be named in
    the place of its samples: four images of one prompt have its questions. Metadata of another form
    is named, and what is expected.
    """
    path = write(tmp_path, ASKED, about("b", "dogs"))
    with pytest.raises(DatasetError, match=r"1 of 3 samples have no question, 'c' among them"):
        with_questions(DATASET, path)
    path = write(tmp_path, ASKED, *(about(name, "dogs") for name in "bcd"))
    assert with_questions(DATASET, path, whole=False).samples
    drawn = tuple(Sample(f"a-{i}", ("all",), text="t", cluster="a") for i in range(4))
    dataset = Dataset("drawn", {}, (*drawn, Sample("b", ("all",), text="u")))
    asked = with_questions(dataset, write(tmp_path, about("a", "cats"), about("b", "dogs")))
    assert {questions_of(sample)[0].id for sample in asked.samples[:4]} == {"cats"}
    with pytest.raises(DatasetError, match=r"sample 'a': questions = \"metadata\" makes .*tag"):
        with_metadata_questions(DATASET)


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


# -- judged battles ------------------------------------------------------------------------------


def test_shipped_battles_are_24_of_each_category() -> None:
    """With few ties, and both sides winning about as often."""
    samples = load_judged_battles(SUITE).samples
    counts = [sample.categories[0] for sample in samples]
    assert {counts.count(name) for name in counts} == {24}
    verdicts = [sample.metadata[VERDICT] for sample in samples]
    assert len(verdicts) == 240
    assert abs(verdicts.count("A") - verdicts.count("B")) < 25
    assert verdicts.count("Tie(A)") + verdicts.count("Tie(B)") < 25
