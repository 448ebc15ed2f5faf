"""Answers of the rule-based models: the right ones, made worse by a known amount.

As in `shapes.degrade`, every decision compares one number in [0, 1), drawn for (seed, step, knob),
with the knob: what a knob does at some setting it also does at every higher one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.datasets.shapes.arena.solver import Solution, keep_scene
from pytest_cepbench.datasets.shapes.arena.truth import ArenaStep
from pytest_cepbench.datasets.shapes.degrade import Degradation, degrade_scene, is_blank
from pytest_cepbench.datasets.shapes.render import SIDE, render
from pytest_cepbench.datasets.shapes.samples import derived_seed
from pytest_cepbench.datasets.shapes.scene import Scene, caption

_STREAM = 2  # keeps these draws apart from those of `degrade_scene`

# The draws of a step are laid out in this order: a new knob goes to the end.
_DRAWS = ("no_image", "no_text", "stop", "surplus", "drift")


@dataclass(frozen=True)
class WriterDegradation(Degradation):
    """Probabilities in [0, 1] of the faults of a writer; the others act on every step.

    no_text: that a step has no text.
    stop: that the answer ends before a step.
    surplus: that a step which repeats the last one follows an answer that did not stop.
    Raises ValueError naming the knob that is out of range.
    """

    no_text: float = 0.0
    stop: float = 0.0
    surplus: float = 0.0


@dataclass(frozen=True)
class AnswerDegradation(WriterDegradation):
    """Probabilities in [0, 1] of the faults of an interleaver.

    no_image: that a step has no image.
    drift: that the next step goes on from what a step drew, mistakes included, instead of from what
        it meant to draw.
    Raises ValueError naming the knob that is out of range.
    """

    no_image: float = 0.0
    drift: float = 0.0


def degraded_answer(
    solution: Solution,
    knobs: AnswerDegradation,
    seed: int,
    told: int | None = None,
    most: int = MOST_STEPS,
) -> list[ArenaStep]:
    """The right answer after all knobs have acted on it.

    seed: any non-negative integer; also decides the jitter, one for all images.
    told: the number of steps to answer with; further ones change nothing, later ones are left out.
        None for as many as are right.
    most: the answer is cut after so many.
    Texts and images make mistakes of their own. A step that is left without both is no step, so
    there can be fewer, or none at all.
    """
    changes = solution.changes
    if told is not None:
        changes = (*changes, *[keep_scene] * told)[:told]
    scene, stopped = solution.start, False
    steps: list[ArenaStep] = []
    for number, change in enumerate(changes):
        draws = _draws(seed, number)
        stopped = draws["stop"] < knobs.stop
        if stopped:
            break
        scene = change(scene)
        steps.append(_step(scene, knobs, seed, number))
        if draws["drift"] < knobs.drift:
            scene = _shown(scene, knobs, seed, number)
    if not stopped and _draws(seed, len(changes))["surplus"] < knobs.surplus:
        steps.append(_step(scene, knobs, seed, len(changes)))
    return [(text, image) for text, image in steps if text or image is not None][:most]


def _draws(seed: int, number: int) -> Mapping[str, float]:
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAM, number))))
    return dict(zip(_DRAWS, source.random(len(_DRAWS)).tolist(), strict=True))


def _step(scene: Scene, knobs: AnswerDegradation, seed: int, number: int) -> ArenaStep:
    draws = _draws(seed, number)
    has_text, has_image = draws["no_text"] >= knobs.no_text, draws["no_image"] >= knobs.no_image
    text_seed = derived_seed(seed, f"text {number}")
    text = ""
    if has_text and not is_blank(knobs, text_seed):
        text = caption(degrade_scene(scene, knobs, text_seed))
    return text, _drawing(scene, knobs, seed, number) if has_image else None


def _drawing(scene: Scene, knobs: AnswerDegradation, seed: int, number: int) -> ImageArtifact:
    if is_blank(knobs, _image_seed(seed, number)):
        return ImageArtifact(np.zeros((SIDE, SIDE, 3), np.uint8))
    return render(_shown(scene, knobs, seed, number), seed)


def _shown(scene: Scene, knobs: AnswerDegradation, seed: int, number: int) -> Scene:
    return degrade_scene(scene, knobs, _image_seed(seed, number))


def _image_seed(seed: int, number: int) -> int:
    return derived_seed(seed, f"image {number}")
