"""Questions made of what samples' metadata say of them: GenEval's clauses, or a generated scene."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import asdict

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.geneval import plural, with_article
from pytest_cepbench.datasets.questions import (
    METADATA,
    QUESTIONS,
    YES,
    FactQuestion,
    attach_questions,
)
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.shapes import sample_scene
from pytest_cepbench.datasets.shapes.questions import scene_questions
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval_prompts import Prompt, PromptAtom, parse_prompt, prompt_atoms

_COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def prompt_questions(prompt: Prompt) -> tuple[FactQuestion, ...]:
    """A question for each of `prompt_atoms`, in their order.

    Color and number of what is not there, and where it stands, depend on its being there.
    """
    atoms = prompt_atoms(prompt)
    present = {atom.clause.name: str(i) for i, atom in enumerate(atoms) if atom.kind == "object"}
    return tuple(_question(str(i), atom, present) for i, atom in enumerate(atoms))


def _question(own_id: str, atom: PromptAtom, present: dict[str, str]) -> FactQuestion:
    name, count = atom.clause.name, atom.clause.count
    if atom.kind == "object":
        return FactQuestion(own_id, f"Is there {with_article(name)} in the image?", "object", YES)
    parents: tuple[str, ...] = (present[name],)
    noun = f"Is the {name}" if count == 1 else f"Are the {plural(name)}"
    if atom.kind == "count":
        number = _COUNTS[count - 1] if count <= len(_COUNTS) else str(count)
        text = f"How many {plural(name)} are in the image?"
        return FactQuestion(own_id, text, "count", number, parents)
    if atom.kind == "color":
        return FactQuestion(own_id, f"{noun} {atom.clause.color}?", "color", YES, parents)
    assert atom.clause.position is not None
    assert atom.target is not None
    text = f"{noun} {atom.clause.position.relation} the {atom.target.name}?"
    parents = tuple(dict.fromkeys((*parents, present[atom.target.name])))
    return FactQuestion(own_id, text, "relation", YES, parents)


VERSION = 1


def with_metadata_questions(dataset: Dataset) -> Dataset:
    """The data set with questions made of each sample's metadata, which its identity names.

    Raises DatasetError for a sample whose metadata holds neither GenEval's clauses nor a scene.
    """
    asked = [(sample, _questions(sample)) for sample in dataset.samples]
    content = [[sample.id, [asdict(question) for question in own]] for sample, own in asked]
    identity = {
        **dataset.identity,
        QUESTIONS: {METADATA: VERSION, "content": digest_json(content)[:16]},
    }
    samples = attach_questions(asked, [own for _, own in asked])
    return replace(dataset, identity=identity, samples=samples)


def _questions(sample: Sample) -> tuple[FactQuestion, ...]:
    """GenEval's clauses go first: they are what the prompt asks for, and a scene says more."""
    clauses = "tag" in sample.metadata
    try:
        if clauses or "scene" not in sample.metadata:
            return prompt_questions(parse_prompt(sample.metadata))
        return scene_questions(sample_scene(sample))
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(
            f'sample {sample.id!r}: questions = "{METADATA}" makes questions of GenEval\'s clauses '
            f"or of a generated scene: {error}"
        ) from error
