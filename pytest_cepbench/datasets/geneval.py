"""GenEval's prompts as samples: built in, or a file of GenEval's or GenEval-Rewritten's form.

Ghosh, Hajishirzi and Schmidt, "GenEval: An object-focused framework for evaluating text-to-image
alignment", 2023 (arXiv 2310.11513); the prompts are theirs, released under the MIT license.
The published suite is read from `geneval_published.jsonl` beside this module. The generator serves
other seeds; a test compares what it makes of seed 43 with that file, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.questions import (
    VERSION as QUESTIONS_VERSION,
)
from pytest_cepbench.datasets.questions import (
    FactQuestion,
    attach_questions,
    check_encodable,
    check_question,
    text_field,
)
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.sources.text_files import read_json_lines
from pytest_cepbench.errors import DatasetError, unknown_name
from pytest_cepbench.metrics.geneval import COLORS
from pytest_cepbench.metrics.geneval_prompts import (
    RELATIONS,
    Clause,
    Exclusion,
    Position,
    Prompt,
    parse_prompt,
    prompt_metadata,
)

PUBLISHED_SEED = 43
"""Seed of the published suite, which draws 100 prompts for each task."""

OBJECTS = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat",
    "traffic light", "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog",
    "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella",
    "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball", "kite",
    "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich",
    "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "computer mouse",
    "tv remote", "computer keyboard", "cell phone", "microwave", "oven", "toaster", "sink",
    "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
"""COCO's 80 classes in COCO's order; GenEval says computer mouse, tv remote, computer keyboard."""

COLORABLE = tuple(name for name in OBJECTS if name != "person")
"""The classes that prompts give a color to."""

NUMBERS = {2: "two", 3: "three", 4: "four"}
"""How many objects the counting task asks for."""


def with_article(words: str) -> str:
    """The words with "a" or "an" before them, by the first letter."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def plural(name: str) -> str:
    """GenEval's plural: "es" after an s, "s" otherwise, so "buses" but also "benchs", "knifes"."""
    return f"{name}es" if name.endswith("s") else f"{name}s"


@dataclass(frozen=True)
class WrittenPrompt:
    """A prompt and its words."""

    prompt: Prompt
    text: str


def write_prompts(
    seed: int = PUBLISHED_SEED, prompts_per_task: int = 100
) -> tuple[WrittenPrompt, ...]:
    """A prompt suite, task by task.

    prompts_per_task: how many are drawn for each task but single_object, which has each of the 80
    classes once, whatever the number; fewer stay, because a prompt that was there is dropped.
    Seed 43 with 100 is the published suite: 80 single_object, 99 two_object, 80 counting, 94
    colors, 100 position and 100 color_attr. One stream of choices runs through all tasks, so
    another number of prompts gives other ones: those of the released `create_prompts.py` with the
    same seed and `-n`.
    Raises DatasetError unless seed >= 0 and prompts_per_task >= 1.
    """
    if seed < 0 or prompts_per_task < 1:
        raise DatasetError(
            "GenEval prompts need a seed that is not negative and at least one prompt per task, "
            f"got {seed} and {prompts_per_task}"
        )
    draws = RandomStream(seed)
    classes = draws.some(len(OBJECTS), len(OBJECTS))
    written = [
        WrittenPrompt(Prompt("single_object", (Clause(name),)), f"a photo of {with_article(name)}")
        for name in (OBJECTS[index] for index in classes)
    ]
    for draw in (_two_object, _counting, _colors, _position, _color_attr):
        written += dict.fromkeys(draw(draws) for _ in range(prompts_per_task))
    return tuple(written)


def _two_object(draws: RandomStream) -> WrittenPrompt:
    first, second = (OBJECTS[index] for index in draws.some(2, len(OBJECTS)))
    prompt = Prompt("two_object", (Clause(first), Clause(second)))
    return WrittenPrompt(prompt, f"a photo of {with_article(first)} and {with_article(second)}")


def _counting(draws: RandomStream) -> WrittenPrompt:
    name = OBJECTS[draws.one(len(OBJECTS))]
    number = list(NUMBERS)[draws.one(len(NUMBERS))]
    prompt = Prompt("counting", (Clause(name, number),), (Exclusion(name, number + 1),))
    return WrittenPrompt(prompt, f"a photo of {NUMBERS[number]} {plural(name)}")


def _colors(draws: RandomStream) -> WrittenPrompt:
    name = COLORABLE[draws.one(len(COLORABLE))]
    color = COLORS[draws.one(len(COLORS))]
    prompt = Prompt("colors", (Clause(name, color=color),))
    return WrittenPrompt(prompt, f"a photo of {with_article(f'{color} {name}')}")


def _position(draws: RandomStream) -> WrittenPrompt:
    subject, target = (OBJECTS[index] for index in draws.some(2, len(OBJECTS)))
    relation = RELATIONS[draws.one(len(RELATIONS))]
    include = (Clause(target), Clause(subject, position=Position(relation, 0)))
    text = f"a photo of {with_article(subject)} {relation} {with_article(target)}"
    return WrittenPrompt(Prompt("position", include), text)


def _color_attr(draws: RandomStream) -> WrittenPrompt:
    names = [COLORABLE[index] for index in draws.some(2, len(COLORABLE))]
    colors = [COLORS[index] for index in draws.some(2, len(COLORS))]
    pairs = list(zip(colors, names, strict=True))
    prompt = Prompt("color_attr", tuple(Clause(name, color=color) for color, name in pairs))
    first, second = (with_article(f"{color} {name}") for color, name in pairs)
    return WrittenPrompt(prompt, f"a photo of {first} and {second}")


_WORD = 2**32


class RandomStream:
    """Random choices that stay the same over versions of NumPy, as the published suite has them.

    The suite was drawn with `numpy.random.default_rng`. NumPy promises the bits of PCG64 for good,
    but not what its `Generator` makes of them; so that is done here, as NumPy did it for the suite
    and still does in 2.4. It holds the generator and the unused half of its last 64 bits.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)
        self._half: int | None = None

    def one(self, limit: int) -> int:
        """One of 0..limit-1, all equally likely, as `Generator.choice(limit)`.

        Lemire's method: the high word of a product, drawn again where the low word would favor some
        numbers. A choice among one takes no bits.
        limit: 1..2**32-1.
        """
        if limit == 1:
            return 0
        while True:
            product = self._next_word() * limit
            if product % _WORD >= (_WORD - limit) % limit:
                return product // _WORD

    def some(self, number: int, limit: int) -> list[int]:
        """Different ones of 0..limit-1 in random order, as `choice(limit, number, replace=False)`.

        Floyd's method, then a shuffle from the end.
        number: 1..limit; limit: up to 10,000 (beyond, NumPy goes another way).
        """
        chosen: list[int] = []
        for last in range(limit - number, limit):
            candidate = self.one(last + 1)
            chosen.append(last if candidate in chosen else candidate)
        for high in range(number - 1, 0, -1):
            low = self.one(high + 1)
            chosen[high], chosen[low] = chosen[low], chosen[high]
        return chosen

    def _next_word(self) -> int:
        if self._half is not None:
            word, self._half = self._half, None
            return word
        self._half, word = divmod(int(self._bits.random_raw()), _WORD)
        return word


VERSION = 1

PUBLISHED_FILE = Path(__file__).with_name("geneval_published.jsonl")
"""The published suite of 553 prompts, as its authors released it."""

_TEXT_FIELDS: Mapping[str, str] = {"prompt": "prompt", "detailed": "detailed_caption"}

_LONGEST_CAPTION = 2**20  # characters: more are no caption

_INDEX = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True)
class _Entry:
    """One prompt. index: five digits. text: what the chain starts from."""

    index: str
    prompt: Prompt
    text: str


def load_geneval(
    path: Path | None = None,
    captions: str = "prompt",
    images_per_prompt: int = 1,
    seed: int = PUBLISHED_SEED,
) -> Dataset:
    """GenEval's prompts for text-first chains; a sample's one category is its task.

    path: a metadata file, one JSON object per line, as GenEval publishes it or with the long
    captions of GenEval-Rewritten (BLIP3-o); the built-in suite where there is none.
    captions: "prompt", or "detailed" for the file's long captions.
    images_per_prompt: samples of each prompt (GenEval draws four images). With one the id is the
    file's "index" or else the line's place ("00000"), with more "00000-0", "00000-1", ...; images
    of one prompt are a cluster: they tell less than as many prompts.
    seed: of the built-in suite; 43 is the published one.
    metadata: "tag", "include" and, where there is one, "exclude" (see `parse_prompt`).
    Raises DatasetError naming file, line and field for what cannot be used, and for options that
    do not fit.
    """
    _check_options(path, captions, images_per_prompt, seed)
    if path is None and seed != PUBLISHED_SEED:
        written = enumerate(write_prompts(seed))
        entries = [_Entry(f"{i:05d}", generated.prompt, generated.text) for i, generated in written]
    else:
        entries = _read(path or PUBLISHED_FILE, _TEXT_FIELDS[captions])
    samples = [
        Sample(
            name,
            (entry.prompt.task,),
            text=entry.text,
            metadata=prompt_metadata(entry.prompt),
            cluster=entry.index if images_per_prompt > 1 else None,
        )
        for entry in entries
        for name in (
            [entry.index]
            if images_per_prompt == 1
            else [f"{entry.index}-{number}" for number in range(images_per_prompt)]
        )
    ]
    content = [[entry.index, entry.text, prompt_metadata(entry.prompt)] for entry in entries]
    identity = {
        "loader": "geneval",
        "version": VERSION,
        "captions": captions,
        "images_per_prompt": images_per_prompt,
        "prompts": digest_json(content)[:16],
    }
    return Dataset("geneval", identity, tuple(sorted(samples, key=lambda sample: sample.id)))


def _check_options(path: Path | None, captions: str, images_per_prompt: int, seed: int) -> None:
    if captions not in _TEXT_FIELDS:
        known = " or ".join(map(repr, _TEXT_FIELDS))
        raise DatasetError(
            f"captions of the GenEval prompts: {known} is expected, got {captions!r}"
        )
    if not 1 <= images_per_prompt <= 100:
        raise DatasetError(f"images_per_prompt must be in 1..100, got {images_per_prompt}")
    if path is None and captions == "detailed":
        raise DatasetError(
            "the built-in GenEval prompts have no detailed captions: give the metadata file of "
            "GenEval-Rewritten as the data set's path"
        )
    if path is not None and seed != PUBLISHED_SEED:
        raise DatasetError(
            f"seed {seed} is for the built-in GenEval prompts, but they come from {str(path)!r}"
        )


def _read(path: Path, text_name: str) -> list[_Entry]:
    places: dict[str, str] = {}
    entries = []
    for number, (place, fields) in enumerate(read_json_lines(path)):
        try:
            entry = _entry(fields, number, text_name)
        except ValueError as error:
            raise DatasetError(f"{place}: {error}") from error
        if entry.index in places:
            raise DatasetError(f"{place}: index: {entry.index!r} is taken by {places[entry.index]}")
        places[entry.index] = place
        entries.append(entry)
    if not entries:
        raise DatasetError(f"{str(path)!r} has no prompts: one JSON object per line is expected")
    return entries


def _entry(fields: Mapping[str, Any], number: int, text_name: str) -> _Entry:
    prompt = parse_prompt(fields)
    for place, clause in enumerate(prompt.include):
        if clause.color is not None and clause.color not in COLORS:
            raise ValueError(
                f"include[{place}]: color: {clause.color!r} is none of {', '.join(COLORS)}"
            )
    names = [clause.name for clause in prompt.include]
    names += [exclusion.name for exclusion in prompt.exclude]
    for name in names:
        check_encodable("class", name)
    text = text_field(fields, text_name, _LONGEST_CAPTION)
    index = fields.get("index", number)
    if isinstance(index, bool) or not _INDEX.fullmatch(str(index)):
        raise ValueError(f"index: up to five digits are expected, got {index!r}")
    return _Entry(f"{int(str(index)):05d}", prompt, text)


GENEVAL2_VERSION = 1

FILE_NAME = "geneval2_data.jsonl"

SKILLS = {
    "object": "object",
    "attribute": "attribute",
    "count": "count",
    "position": "relation",
    "verb": "action",
}
"""What an atom of a prompt is about, and the kind of fact that this is here."""

_FIELDS = ("prompt", "atom_count", "vqa_list", "skills")

_MOST_ATOMS = 99


def load_geneval2(path: Path, images_per_prompt: int = 1) -> Dataset:
    """GenEval 2's prompts for text-first chains; a sample's one category is its atomicity.

    Each has the questions that Soft-TIFA asks about its drawings. Source: Kamath et al., "GenEval
    2: Addressing Benchmark Drift in Text-to-Image Evaluation" (arXiv 2512.16853). The 800 prompts
    are released under CC BY-NC 4.0 and do not come with this package.

    path: the folder of the released repository, or its `geneval2_data.jsonl`: one JSON object per
    line with "prompt", "atom_count", "vqa_list" (pairs of question and answer) and "skills" (one
    for each pair).
    images_per_prompt: samples of each prompt. With one the id is the line's place ("00000"), with
    more "00000-0", "00000-1", ...; images of one prompt are a cluster.
    categories: "atoms-3" to "atoms-10" in the released file.
    Raises DatasetError naming file, line and field for what cannot be used, a question without an
    answer and a skill that is not known among it.
    """
    if not 1 <= images_per_prompt <= 100:
        raise DatasetError(f"images_per_prompt must be in 1..100, got {images_per_prompt}")
    file = path / FILE_NAME if path.is_dir() else path
    if not file.exists():
        raise DatasetError(
            f"{str(path)!r} has no {FILE_NAME}: give the folder of the released repository"
        )
    asked: list[tuple[Sample, tuple[FactQuestion, ...]]] = []
    content: list[object] = []
    for number, (place, fields) in enumerate(read_json_lines(file)):
        try:
            text, atoms, questions = _geneval2_entry(fields)
        except ValueError as error:
            raise DatasetError(f"{place}: {error}") from error
        content.append([text, atoms, [[q.text, q.answer, q.kind] for q in questions]])
        index = f"{number:05d}"
        repeated = images_per_prompt > 1
        for name in [f"{index}-{n}" for n in range(images_per_prompt)] if repeated else [index]:
            cluster = index if repeated else None
            sample = Sample(name, (f"atoms-{atoms}",), text=text, cluster=cluster)
            asked.append((sample, questions))
    if not asked:
        raise DatasetError(f"{str(file)!r} has no prompts: one JSON object per line is expected")
    identity = {
        "loader": "geneval2",
        "version": [GENEVAL2_VERSION, QUESTIONS_VERSION],
        "images_per_prompt": images_per_prompt,
        "prompts": digest_json(content)[:16],
    }
    with_questions = attach_questions(asked, [questions for _, questions in asked])
    samples = sorted(with_questions, key=lambda sample: sample.id)
    return Dataset("geneval2", identity, tuple(samples))


def _geneval2_entry(fields: Mapping[str, Any]) -> tuple[str, int, tuple[FactQuestion, ...]]:
    for key in fields:
        if key not in _FIELDS:
            raise ValueError(unknown_name("key", key, _FIELDS))
    text, atoms = text_field(fields, "prompt"), fields.get("atom_count")
    if not isinstance(atoms, int) or isinstance(atoms, bool) or not 1 <= atoms <= _MOST_ATOMS:
        raise ValueError(
            f"atom_count: a whole number from 1 to {_MOST_ATOMS} is expected, got {atoms!r:.80}"
        )
    return text, atoms, _geneval2_questions(fields.get("vqa_list"), fields.get("skills"))


def _geneval2_questions(pairs: Any, skills: Any) -> tuple[FactQuestion, ...]:
    if not isinstance(pairs, list) or not pairs:
        raise ValueError(
            f"vqa_list: a list of questions with their answers is expected, got {pairs!r:.80}"
        )
    if not isinstance(skills, list) or len(skills) != len(pairs):
        many = len(skills) if isinstance(skills, list) else f"{skills!r:.80}"
        raise ValueError(f"skills: one for each of {len(pairs)} questions is expected, got {many}")
    questions = []
    for place, (pair, skill) in enumerate(zip(pairs, skills, strict=True)):
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(
                f"vqa_list[{place}]: a question and its answer are expected, got {pair!r:.80}"
            )
        if not isinstance(skill, str) or skill not in SKILLS:
            raise ValueError(f"skills[{place}]: {unknown_name('skill', str(skill), SKILLS)}")
        stated = {"id": str(place), "question": pair[0], "answer": pair[1], "kind": SKILLS[skill]}
        try:
            questions.append(check_question(stated))
        except ValueError as error:
            raise ValueError(f"vqa_list[{place}]: {error}") from error
    return tuple(questions)
