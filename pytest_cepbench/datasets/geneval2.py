"""GenEval 2's prompts as samples, with the questions that Soft-TIFA asks about their drawings.

Kamath et al., "GenEval 2: Addressing Benchmark Drift in Text-to-Image Evaluation" (arXiv
2512.16853). The 800 prompts are released under CC BY-NC 4.0 and do not come with this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.questions import (
    VERSION as QUESTIONS_VERSION,
)
from pytest_cepbench.datasets.questions import (
    FactQuestion,
    attach_questions,
    check_question,
    text_field,
)
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.sources.text_files import read_json_lines
from pytest_cepbench.errors import DatasetError, unknown_name

VERSION = 1

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
            text, atoms, questions = _entry(fields)
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
        "version": [VERSION, QUESTIONS_VERSION],
        "images_per_prompt": images_per_prompt,
        "prompts": digest_json(content)[:16],
    }
    with_questions = attach_questions(asked, [questions for _, questions in asked])
    samples = sorted(with_questions, key=lambda sample: sample.id)
    return Dataset("geneval2", identity, tuple(samples))


def _entry(fields: Mapping[str, Any]) -> tuple[str, int, tuple[FactQuestion, ...]]:
    for key in fields:
        if key not in _FIELDS:
            raise ValueError(unknown_name("key", key, _FIELDS))
    text, atoms = text_field(fields, "prompt"), fields.get("atom_count")
    if not isinstance(atoms, int) or isinstance(atoms, bool) or not 1 <= atoms <= _MOST_ATOMS:
        raise ValueError(
            f"atom_count: a whole number from 1 to {_MOST_ATOMS} is expected, got {atoms!r:.80}"
        )
    return text, atoms, _questions(fields.get("vqa_list"), fields.get("skills"))


def _questions(pairs: Any, skills: Any) -> tuple[FactQuestion, ...]:
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
