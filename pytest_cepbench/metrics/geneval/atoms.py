"""Atomic facts of a GenEval prompt: what each clause demands, one demand at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_cepbench.metrics.geneval.requirements import Clause, Position, Prompt

ATOM_KINDS = ("object", "count", "color", "relation")


@dataclass(frozen=True)
class PromptAtom:
    """One demand of a prompt.

    kind: of the fact, one of `metrics.facts.KINDS`.
    words: for people, such as "red bench"; with the kind unique within a prompt.
    demand: a prompt that an image is right for where it meets this demand; see `judge`.
    clause, target: the clauses that it is about; the target of a relation alone.
    """

    kind: str
    words: str
    demand: Prompt
    clause: Clause
    target: Clause | None = None


def prompt_atoms(prompt: Prompt) -> tuple[PromptAtom, ...]:
    """The demands of a prompt, each once, in the order of its clauses.

    object    one object of the class is there
    count     as many as the clause says, and no more where the prompt excludes more; left out of
              clauses of one object that exclude nothing
    color     as many as the clause says have its color
    relation  they stand where the clause says

    An image that is right for the prompt meets all of them. One that meets all of them may still be
    wrong, where a relation holds to a target that lacks its color.
    """
    return tuple({(atom.kind, atom.words): atom for atom in _atoms(prompt)}.values())


def _atoms(prompt: Prompt) -> Iterator[PromptAtom]:
    for clause in prompt.include:
        name, count = clause.name, clause.count
        excluded = tuple(own for own in prompt.exclude if own.name == name)
        yield PromptAtom("object", name, Prompt(prompt.task, (Clause(name),)), clause)
        if count > 1 or excluded:
            counted = Prompt(prompt.task, (Clause(name, count),), excluded)
            yield PromptAtom("count", f"{count} {name}", counted, clause)
        if clause.color is not None:
            colored = Prompt(prompt.task, (Clause(name, count, clause.color),))
            yield PromptAtom("color", f"{clause.color} {name}", colored, clause)
        if clause.position is not None:
            target, relation = prompt.include[clause.position.target], clause.position.relation
            placed = Clause(name, count, position=Position(relation, 0))
            demand = Prompt(prompt.task, (Clause(target.name, target.count), placed))
            words = f"{name} {relation} {target.name}"
            yield PromptAtom("relation", words, demand, clause, target)
