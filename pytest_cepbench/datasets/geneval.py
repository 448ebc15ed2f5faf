"""GenEval's prompts as samples: built in, or a file of GenEval's or GenEval-Rewritten's form.

Ghosh, Hajishirzi and Schmidt, "GenEval: An object-focused framework for evaluating text-to-image
alignment", 2023 (arXiv 2310.11513); the prompts are theirs, released under the MIT license.
The published suite is read from `geneval_published.jsonl` beside this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.questions import (
    METADATA,
    QUESTIONS,
    YES,
    FactQuestion,
    Text,
    attach_questions,
)
from pytest_cepbench.datasets.questions import VERSION as QUESTIONS_VERSION
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.shapes import sample_scene
from pytest_cepbench.datasets.shapes.questions import scene_questions
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json_lines
from pytest_cepbench.errors import DatasetError, unknown_name
from pytest_cepbench.metrics.geneval import COLORS
from pytest_cepbench.metrics.geneval_prompts import (
    Prompt,
    parse_prompt,
    prompt_atoms,
    prompt_metadata,
)

VERSION = 1

PUBLISHED_FILE = Path(__file__).with_name("geneval_published.jsonl")
"""The published suite of 553 prompts, as its authors released it."""


_Caption = Annotated[str, msgspec.Meta(pattern=r"\S", max_length=2**20)]


class _PromptLine(msgspec.Struct):
    text: _Caption = msgspec.field(name="prompt")
    index: (
        Annotated[int, msgspec.Meta(ge=0, le=99_999)]
        | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,5}\Z")]
        | None
    ) = None


class _DetailedLine(_PromptLine):
    text: _Caption = msgspec.field(name="detailed_caption")


_LINES: Mapping[str, type[_PromptLine]] = {"prompt": _PromptLine, "detailed": _DetailedLine}


def load_geneval(
    path: Path | None = None, captions: str = "prompt", images_per_prompt: int = 1
) -> Dataset:
    """GenEval's prompts for text-first chains; a sample's one category is its task.

    path: a metadata file, one JSON object per line, as GenEval publishes it or with the long
    captions of GenEval-Rewritten (BLIP3-o); the built-in suite where there is none.
    captions: "prompt", or "detailed" for the file's long captions.
    images_per_prompt: samples of each prompt (GenEval draws four images). With one the id is the
    file's "index" or else the line's place ("00000"), with more "00000-0", "00000-1", ...; images
    of one prompt are a cluster: they tell less than as many prompts.
    metadata: "tag", "include" and, where there is one, "exclude" (see `parse_prompt`).
    Raises DatasetError naming file, line and field for what cannot be used, and for options that
    do not fit.
    """
    if captions not in _LINES:
        known = " or ".join(map(repr, _LINES))
        raise DatasetError(
            f"captions of the GenEval prompts: {known} is expected, got {captions!r}"
        )
    if path is None and captions == "detailed":
        raise DatasetError(
            "the built-in GenEval prompts have no detailed captions: give the metadata file of "
            "GenEval-Rewritten as the data set's path"
        )
    samples: list[Sample] = []
    content: list[object] = []
    for number, (place, fields) in enumerate(read_json_lines(path or PUBLISHED_FILE)):
        try:
            prompt = parse_prompt(fields)
        except ValueError as error:
            raise DatasetError(f"{place}: {error}") from error
        for clause_number, clause in enumerate(prompt.include):
            if clause.color is not None and clause.color not in COLORS:
                raise DatasetError(
                    f"{place}: include[{clause_number}]: color: {clause.color!r} is none of "
                    f"{', '.join(COLORS)}"
                )
        line = convert_record(place, fields, _LINES[captions])
        index = f"{number if line.index is None else int(line.index):05d}"
        metadata = prompt_metadata(prompt)
        content.append([index, line.text, metadata])
        first = Sample(index, (prompt.task,), text=line.text, metadata=metadata)
        samples += _drawings(first, images_per_prompt)
    if not samples:
        raise DatasetError(f"{str(path)!r} has no prompts: one JSON object per line is expected")
    identity = {
        "loader": "geneval",
        "version": VERSION,
        "captions": captions,
        "images_per_prompt": images_per_prompt,
        "prompts": digest_json(content)[:16],
    }
    return Dataset("geneval", identity, tuple(samples))


def _drawings(prompt: Sample, images_per_prompt: int) -> list[Sample]:
    """The samples of a prompt, one for each image. Raises DatasetError for an impossible number."""
    if not 1 <= images_per_prompt <= 100:
        raise DatasetError(f"images_per_prompt must be in 1..100, got {images_per_prompt}")
    if images_per_prompt == 1:
        return [prompt]
    numbers = range(images_per_prompt)
    return [replace(prompt, id=f"{prompt.id}-{n}", cluster=prompt.id) for n in numbers]


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


class _Line2(msgspec.Struct, forbid_unknown_fields=True):
    prompt: Text
    atoms: Annotated[int, msgspec.Meta(ge=1, le=99)] = msgspec.field(name="atom_count")
    pairs: Annotated[list[tuple[Text, Text]], msgspec.Meta(min_length=1)] = msgspec.field(
        name="vqa_list"
    )
    skills: list[str]


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
    file = path / FILE_NAME if path.is_dir() else path
    if not file.exists():
        raise DatasetError(
            f"{str(path)!r} has no {FILE_NAME}: give the folder of the released repository"
        )
    asked: list[tuple[Sample, tuple[FactQuestion, ...]]] = []
    content: list[object] = []
    for number, (place, fields) in enumerate(read_json_lines(file)):
        line = convert_record(place, fields, _Line2)
        if len(line.skills) != len(line.pairs):
            raise DatasetError(
                f"{place}: skills: one for each of {len(line.pairs)} questions is expected, got "
                f"{len(line.skills)}"
            )
        for own, skill in enumerate(line.skills):
            if skill not in SKILLS:
                raise DatasetError(
                    f"{place}: skills[{own}]: {unknown_name('skill', skill, SKILLS)}"
                )
        questions = tuple(
            FactQuestion(str(own), text, SKILLS[skill], answer)
            for own, ((text, answer), skill) in enumerate(zip(line.pairs, line.skills, strict=True))
        )
        content.append([line.prompt, line.atoms, [[q.text, q.answer, q.kind] for q in questions]])
        first = Sample(f"{number:05d}", (f"atoms-{line.atoms}",), text=line.prompt)
        asked += [(own, questions) for own in _drawings(first, images_per_prompt)]
    if not asked:
        raise DatasetError(f"{str(file)!r} has no prompts: one JSON object per line is expected")
    identity = {
        "loader": "geneval2",
        "version": [GENEVAL2_VERSION, QUESTIONS_VERSION],
        "images_per_prompt": images_per_prompt,
        "prompts": digest_json(content)[:16],
    }
    samples = attach_questions(asked, [questions for _, questions in asked])
    return Dataset("geneval2", identity, samples)


# -- questions made of what samples' metadata say of them: clauses, or a generated scene -----------

_COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def prompt_questions(prompt: Prompt) -> tuple[FactQuestion, ...]:
    """A question for each of `prompt_atoms`, in their order.

    Color and number of what is not there, and where it stands, depend on its being there.
    """
    atoms = prompt_atoms(prompt)
    present = {atom.clause.name: str(i) for i, atom in enumerate(atoms) if atom.kind == "object"}
    questions = []
    for number, atom in enumerate(atoms):
        name, count, position = atom.clause.name, atom.clause.count, atom.clause.position
        # GenEval's plural: "buses", but also "benchs" and "knifes".
        plural = f"{name}es" if name.endswith("s") else f"{name}s"
        noun = f"Is the {name}" if count == 1 else f"Are the {plural}"
        answer = YES
        parents: tuple[str, ...] = (present[name],)
        if atom.kind == "object":
            text = f"Is there {'an' if name[0] in 'aeiou' else 'a'} {name} in the image?"
            parents = ()
        elif atom.kind == "count":
            text = f"How many {plural} are in the image?"
            answer = _COUNTS[count - 1] if count <= len(_COUNTS) else str(count)
        elif atom.kind == "color":
            text = f"{noun} {atom.clause.color}?"
        else:
            assert position is not None
            assert atom.target is not None
            text = f"{noun} {position.relation} the {atom.target.name}?"
            parents = tuple(dict.fromkeys((*parents, present[atom.target.name])))
        questions.append(FactQuestion(str(number), text, atom.kind, answer, parents))
    return tuple(questions)


METADATA_VERSION = 1


def with_metadata_questions(dataset: Dataset) -> Dataset:
    """The data set with questions made of each sample's metadata, which its identity names.

    Raises DatasetError for a sample whose metadata holds neither GenEval's clauses nor a scene.
    """
    asked: list[tuple[Sample, tuple[FactQuestion, ...]]] = []
    for sample in dataset.samples:
        # GenEval's clauses go first: they are what the prompt asks for, and a scene says more.
        of_scene = "scene" in sample.metadata and "tag" not in sample.metadata
        try:
            own = (
                scene_questions(sample_scene(sample))
                if of_scene
                else prompt_questions(parse_prompt(sample.metadata))
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f'sample {sample.id!r}: questions = "{METADATA}" makes questions of GenEval\'s '
                f"clauses or of a generated scene: {error}"
            ) from error
        asked.append((sample, own))
    content = [[sample.id, [asdict(question) for question in own]] for sample, own in asked]
    identity = {
        **dataset.identity,
        QUESTIONS: {METADATA: METADATA_VERSION, "content": digest_json(content)[:16]},
    }
    samples = attach_questions(asked, [own for _, own in asked])
    return replace(dataset, identity=identity, samples=samples)
