"""Atomic facts of GenEval's prompts: each demand by itself, by the rules of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Detection
from pytest_cepbench.datasets.geneval import load_geneval
from pytest_cepbench.metrics.facts import KINDS
from pytest_cepbench.metrics.geneval import judge
from pytest_cepbench.metrics.geneval_prompts import (
    RELATIONS,
    Clause,
    Exclusion,
    Position,
    Prompt,
    parse_prompt,
    prompt_atoms,
)

COLORS = ("red", "blue")


def _words(prompt: Prompt) -> list[tuple[str, str]]:
    return [(atom.kind, atom.words) for atom in prompt_atoms(prompt)]


def test_each_task_demands_what_its_clauses_name() -> None:
    """Objects always; number, color and place where the prompt says them."""
    counting = Prompt("counting", (Clause("clock", 2),), (Exclusion("clock", 3),))
    assert _words(counting) == [("object", "clock"), ("count", "2 clock")]
    place = Position("left of", 0)
    position = Prompt("position", (Clause("cat"), Clause("dog", position=place)))
    assert _words(position) == [
        ("object", "cat"), ("object", "dog"), ("relation", "dog left of cat"),
    ]  # fmt: skip
    colored = Prompt("color_attr", (Clause("cup", color="red"), Clause("cow", color="blue")))
    assert _words(colored) == [
        ("object", "cup"), ("color", "red cup"), ("object", "cow"), ("color", "blue cow"),
    ]  # fmt: skip


def test_the_published_prompts_have_atoms_of_known_kinds() -> None:
    """No two of one prompt are the same."""
    for sample in load_geneval().samples:
        words = _words(parse_prompt(sample.metadata))
        assert len(set(words)) == len(words) >= 1
        assert {kind for kind, _ in words} <= set(KINDS)


BOXES = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(8, 30), st.integers(8, 30))


def _detections(name: str) -> st.SearchStrategy[tuple[Detection, ...]]:
    one = st.builds(
        lambda box, color: Detection(
            name, 0.95, (box[0], box[1], box[0] + box[2], box[1] + box[3]), color=color
        ),
        BOXES,
        st.sampled_from(COLORS),
    )
    return st.lists(one, max_size=4).map(tuple)


@st.composite
def _prompts(draw: st.DrawFn) -> Prompt:
    task = draw(st.sampled_from(["counting", "position", "color_attr"]))
    if task == "counting":
        count = draw(st.integers(2, 3))
        return Prompt("counting", (Clause("cat", count),), (Exclusion("cat", count + 1),))
    if task == "position":
        place = Position(draw(st.sampled_from(RELATIONS)), 0)
        return Prompt("position", (Clause("cat"), Clause("dog", position=place)))
    first, second = draw(st.permutations(COLORS))
    return Prompt("color_attr", (Clause("cat", color=first), Clause("dog", color=second)))


@given(_prompts(), _detections("cat"), _detections("dog"))
def test_a_right_image_meets_all_demands(
    prompt: Prompt, cats: tuple[Detection, ...], dogs: tuple[Detection, ...]
) -> None:
    """And one that meets all of these is right: no atom says more or less than its clause."""
    found = {"cat": cats, "dog": dogs}
    met = [judge(atom.demand, found, {}).correct for atom in prompt_atoms(prompt)]
    assert all(met) == judge(prompt, found, {}).correct


def test_an_atom_is_missed_by_itself() -> None:
    """A red cat where a blue one is asked for is still a cat."""
    prompt = Prompt("colors", (Clause("cat", color="blue"),))
    found = {"cat": (Detection("cat", 0.9, (0, 0, 9, 9), color="red"),)}
    met = {atom.kind: judge(atom.demand, found, {}).correct for atom in prompt_atoms(prompt)}
    assert met == {"object": True, "color": False}


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_relation_needs_both(relation: str) -> None:
    """Without its target nothing stands anywhere."""
    place = Position(relation, 0)  # type: ignore[arg-type] # each is one
    prompt = Prompt("position", (Clause("cat"), Clause("dog", position=place)))
    found = {"dog": (Detection("dog", 0.9, (0, 0, 9, 9)),)}
    met = {atom.words: judge(atom.demand, found, {}).correct for atom in prompt_atoms(prompt)}
    assert met == {"cat": False, "dog": True, f"dog {relation} cat": False}
