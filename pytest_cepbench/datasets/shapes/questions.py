"""Questions about scenes of the shapes world, worded as GenEval 2 words its own, and their answers.

The grammar of questions in EBNF; a noun is the name of a shape or "shape", singular or plural:

    question = "How many" things "are in the image?"
             | ( "Are there any" | "Is there a" ) things "in the image?"
             | ( "Is the" | "Are the" ) things look "?"
             | ( "Is the" | "Are the" ) things relation "the" things "?" ;
    things   = [ size ] [ color ] noun ;
    look     = size | color ;
    relation = "left of" | "right of" | "above" | "below" ;

A count is answered by its word, "zero" for none, everything else by "yes" or "no". "The circle is
red" holds where there is a circle and every circle is red; "the circle is left of the square" where
there are both and every circle is left of every square.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, permutations

from pytest_cepbench.datasets.questions import NO, YES, FactQuestion
from pytest_cepbench.datasets.shapes.scene import (
    COLORS,
    COUNTS,
    PLACES,
    SHAPES,
    SIZES,
    Scene,
    SceneObject,
    count_phrase,
)
from pytest_cepbench.metrics.facts import Fact

VERSION = "questions/1"
"""Changes when a question has another answer: part of the VQA model's fingerprint."""


_ANY = "shape"

_SINGULAR = {
    form: noun
    for noun in (*SHAPES, _ANY)
    for form in (noun, f"{noun}es" if noun.endswith("s") else f"{noun}s")
}

_THINGS = rf"((?:(?:{'|'.join(SIZES)})\s+)?(?:(?:{'|'.join(COLORS)})\s+)?(?:{'|'.join(_SINGULAR)}))"

_RELATIONS: Mapping[str, Callable[[SceneObject, SceneObject], bool]] = {
    "left of": lambda one, other: one.column < other.column,
    "right of": lambda one, other: one.column > other.column,
    "above": lambda one, other: one.row < other.row,
    "below": lambda one, other: one.row > other.row,
}


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(" ", r"\s+"), re.IGNORECASE | re.ASCII)


_COUNT = _pattern(rf"How many {_THINGS} are in the image\?")
_PRESENCE = _pattern(rf"(?:Are there any|Is there an?) {_THINGS} in the image\?")
_LOOK = _pattern(rf"(?:Is|Are) the {_THINGS} ({'|'.join((*SIZES, *COLORS))})\s*\?")
_RELATION = _pattern(rf"(?:Is|Are) the {_THINGS} ({'|'.join(_RELATIONS)}) the {_THINGS}\s*\?")


def answer_question(scene: Scene, text: str) -> str | None:
    """The answer of a scene to the first question of the grammar in a text; None without one."""
    if match := _COUNT.search(text):
        return _count(len(_select(scene, match[1])))
    if match := _PRESENCE.search(text):
        return YES if _select(scene, match[1]) else NO
    if match := _LOOK.search(text):
        things, look = _select(scene, match[1]), match[2].lower()
        return YES if things and all(look in thing.look for thing in things) else NO
    if match := _RELATION.search(text):
        holds = _RELATIONS[" ".join(match[2].lower().split())]
        things, others = _select(scene, match[1]), _select(scene, match[3])
        found = bool(things and others) and all(holds(t, o) for t in things for o in others)
        return YES if found else NO
    return None


def _select(scene: Scene, things: str) -> Sequence[SceneObject]:
    """The objects that a noun with its adjectives means."""
    *adjectives, noun = things.lower().split()
    shape = _SINGULAR[noun]
    return [
        scene_object
        for scene_object in scene.objects
        if shape in (_ANY, scene_object.shape)
        and all(adjective in scene_object.look for adjective in adjectives)
    ]


def scene_questions(scene: Scene) -> tuple[FactQuestion, ...]:
    """What is asked about a picture of a scene, each question once.

    The number of all objects; of each object its shape, with it its color, with that its size; and
    where it stands to each other object, for looks that the scene has once. Each depends on the one
    with a word less: the color of what is not there is not right. A scene without objects is asked
    its number alone.
    """
    number = len(scene.objects)
    count = FactQuestion("count", "How many shapes are in the image?", "count", _count(number))
    looks = Counter(thing.look for thing in scene.objects)
    questions = [count]
    for size, color, shape in looks:
        nouns = (shape, f"{color} {shape}", f"{size} {color} {shape}")
        for noun, kind, parents in zip(
            nouns, ("object", "color", "size"), ((), nouns[:1], nouns[1:2]), strict=True
        ):
            text = f"Is there a {noun} in the image?"
            questions.append(FactQuestion(noun, text, kind, YES, parents))
    pairs = permutations([thing for thing in scene.objects if looks[thing.look] == 1], 2)
    questions += [
        FactQuestion(
            f"{first.noun} {relation} {second.noun}",
            f"Is the {first.noun} {relation} the {second.noun}?",
            "relation",
            YES,
            (first.noun, second.noun),
        )
        for first, second in pairs
        for relation in ("left of", "above")
        if _RELATIONS[relation](first, second)
    ]
    return tuple({question.id: question for question in questions}.values())


def _count(number: int) -> str:
    return ("zero", *COUNTS)[number]


SCENE_FACTS = "shapes-facts/1"
"""Changes when a scene has other facts: part of the identity of what is measured by them."""


@lru_cache(4096)  # the same scenes come back from checker to checker, and along a chain
def scene_facts(scene: Scene) -> tuple[Fact, ...]:
    """The facts of a scene, sorted; no two scenes of up to four objects have the same.

    object    "circle": something has this shape, once for each object
    count     "three shapes": of the whole scene; the empty scene has this fact alone
    color     "red": something has this color, once for each object
    size      "large", once for each object
    position  "top left": something stands there, once for each object
    relation  "small red circle left of large blue square", once for each pair of objects: one of
              left of, above, above left of, above right of

    Every kind but the last looks at one attribute alone, so that an error in one is not counted in
    the others: another color costs a color. What belongs together is the relations' part, which
    name both objects whole: attributes or places that are exchanged cost relations only.
    """
    words = Counter([("count", count_phrase(scene))])
    for thing in scene.objects:
        place = PLACES[thing.cell]
        own = {"object": thing.shape, "color": thing.color, "size": thing.size, "position": place}
        words.update(own.items())
    for first, second in combinations(scene.objects, 2):  # sorted by cell, row by row
        if first.row == second.row:
            where = "left of"
        elif first.column == second.column:
            where = "above"
        else:
            where = "above left of" if first.column < second.column else "above right of"
        words["relation", f"{first.noun} {where} {second.noun}"] += 1
    return tuple(
        sorted(
            Fact(kind, text, nth)
            for (kind, text), number in words.items()
            for nth in range(1, number + 1)
        )
    )
