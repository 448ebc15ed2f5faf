"""The generator of GenEval's prompt suite: seed 43 gives the published 553 prompts.

Ghosh, Hajishirzi and Schmidt, "GenEval: An object-focused framework for evaluating text-to-image
alignment", 2023 (arXiv 2310.11513); the prompts are theirs, released under the MIT license.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_cepbench.datasets.geneval.draws import RandomStream
from pytest_cepbench.datasets.geneval.objects import (
    COLORABLE,
    NUMBERS,
    OBJECTS,
    plural,
    with_article,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval import (
    COLORS,
    RELATIONS,
    Clause,
    Exclusion,
    Position,
    Prompt,
)

PUBLISHED_SEED = 43
"""Seed of the published suite, which draws 100 prompts for each task."""


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
    Seed 43 with 100 is the published suite: 80 single_object, 99 two_object, 80 counting, 94 colors,
    100 position and 100 color_attr. One stream of choices runs through all tasks, so another number
    of prompts gives other ones: those of the released `create_prompts.py` with the same seed and `-n`.
    Raises DatasetError unless seed >= 0 and prompts_per_task >= 1.
    """
    if seed < 0 or prompts_per_task < 1:
        msg = (
            "GenEval prompts need a seed that is not negative and at least one prompt per task, "
            f"got {seed} and {prompts_per_task}"
        )
        raise DatasetError(msg)
    draws = RandomStream(seed)
    classes = draws.some(len(OBJECTS), len(OBJECTS))
    written = [_single_object(OBJECTS[index]) for index in classes]
    for draw in (_two_object, _counting, _colors, _position, _color_attr):
        written += _different(draw, draws, prompts_per_task)
    return tuple(written)


def _different(
    draw: Callable[[RandomStream], WrittenPrompt], draws: RandomStream, number: int
) -> list[WrittenPrompt]:
    return list(dict.fromkeys(draw(draws) for _ in range(number)))


def _single_object(name: str) -> WrittenPrompt:
    prompt = Prompt("single_object", (Clause(name),))
    return WrittenPrompt(prompt, f"a photo of {with_article(name)}")


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
