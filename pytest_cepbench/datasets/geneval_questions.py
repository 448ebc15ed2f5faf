"""Questions made of GenEval's metadata: what each clause of a prompt demands, asked in words."""

from __future__ import annotations

from pytest_cepbench.datasets.geneval import plural, with_article
from pytest_cepbench.datasets.questions import YES, FactQuestion
from pytest_cepbench.metrics.geneval.atoms import PromptAtom, prompt_atoms
from pytest_cepbench.metrics.geneval.requirements import Prompt

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
