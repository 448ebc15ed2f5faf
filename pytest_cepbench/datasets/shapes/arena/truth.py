"""The truth of an answer: how far it meets OpenING's seven criteria, exactly known in this world.

With N answered and G right steps, F1 over objects (place, size, color and shape), and 1 for two
empty scenes:

    correctness   mean over the first max(N, G) steps of half the F1 of the text's scene and the
                  right one, and half that of the image's; parts and steps that are missing or too
                  many count 0
    coherency     mean over N of the F1 of the text's scene and the image's; 0 where either is
                  missing
    consistency   mean over neighboring steps that both answers have of the share of the objects
                  which the right answer keeps that both images show, within one pixel in the same
                  place, or that neither shows; 0 where an image is missing, 1 where there are no
                  two steps
    quality       share of the texts that are captions, word for word, and of the images that leave
                  little unexplained once the nearest drawing of their scene is taken away
    preference    1: nothing in this world can offend
    completeness  min(N, G) / G
    richness      different texts and different images, by their scenes, in 2 N parts

A text that names no object and does not say that there is none has no scene, like one that is
missing; neither has an image that shows no object and is no drawing of an empty scene.

The criteria and their order are those of OpenING, appendix C.3, "Key Evaluation Criteria"; the
formulas are our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from itertools import pairwise
from math import dist
from statistics import fmean

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.datasets.shapes.arena.solver import Solution, keep_scene
from pytest_cepbench.datasets.shapes.degrade import Degradation, degrade_scene, is_blank
from pytest_cepbench.datasets.shapes.parser import Picture, read_picture
from pytest_cepbench.datasets.shapes.samples import derived_seed
from pytest_cepbench.datasets.shapes.scene import (
    EMPTY_CAPTION,
    SIDE,
    Scene,
    caption,
    parse_caption,
    render,
)

TRUTH_VERSION = "arena-truth/1"
"""Names the formulas and weights; changes with any of them."""

ArenaStep = tuple[str, ImageArtifact | None]
"""A step's text, empty where it has none, and its image."""

_SHIFT = 1.0  # pixels that an object's center may move; drawn anew it moves by 1.0 on average
_RESIDUAL = 0.06  # the worst drawings of the shipped generator leave 0.04, black images 0.1


@dataclass(frozen=True)
class Truth:
    """Scores of an answer, each in [0, 1], in OpenING's order; formulas in the module's text."""

    correctness: float
    coherency: float
    consistency: float
    quality: float
    preference: float
    completeness: float
    richness: float

    @property
    def total(self) -> float:
        """The sum weighted by `WEIGHTS`, in [0, 1]."""
        scores: tuple[float, ...] = astuple(self)
        return sum(weight * score for weight, score in zip(WEIGHTS, scores, strict=True))


CRITERIA = tuple(field.name for field in fields(Truth))
"""Names of the seven scores, in order."""

WEIGHTS = (0.40, 0.20, 0.15, 0.10, 0.05, 0.07, 0.03)
"""Weights of the seven scores, in order."""


@dataclass(frozen=True)
class _Step:
    """A step that was read.

    text: in lower case, words a space apart; empty where it has none.
    picture: what its image shows; None where it has none.
    """

    text: str
    picture: Picture | None

    @cached_property
    def described(self) -> Scene | None:
        """The scene that its text tells of; None where it tells of none, not even an empty one."""
        scene = parse_caption(self.text)
        return scene if scene.objects or EMPTY_CAPTION in self.text else None

    @property
    def shown(self) -> Scene | None:
        """The scene that its image shows; None where it shows none, not even an empty one."""
        if self.picture is None or not (self.picture.scene.objects or self.is_drawing):
            return None
        return self.picture.scene

    @property
    def is_drawing(self) -> bool:
        return self.picture is not None and self.picture.residual <= _RESIDUAL


def score_answer(solution: Solution, steps: Sequence[ArenaStep]) -> Truth:
    """The truth of an answer; all zero for one without steps."""
    if not steps:
        return Truth(*(0.0 for _ in CRITERIA))
    answered = [
        _Step(" ".join(text.lower().split()), None if image is None else read_picture(image))
        for text, image in steps
    ]
    first = answered[0].described if answered[0].shown is None else answered[0].shown
    right = solution.scenes_after(first)
    told = [(step.text, step.described) for step in answered if step.text]
    faultless = [scene is not None and caption(scene) == text for text, scene in told]
    faultless += [step.is_drawing for step in answered if step.picture is not None]
    texts = {step.described for step in answered} - {None}
    images = {step.shown for step in answered} - {None}
    return Truth(
        correctness=sum(
            0.5 * _f1(step.described, scene) + 0.5 * _f1(step.shown, scene)
            for step, scene in zip(answered, right, strict=False)
        )
        / max(len(answered), len(right)),
        coherency=fmean(_f1(step.described, step.shown) for step in answered),
        consistency=_consistency(answered, right),
        quality=fmean(faultless) if faultless else 0.0,
        preference=1.0,
        completeness=min(len(answered), len(right)) / len(right),
        richness=(len(texts) + len(images)) / (2 * len(answered)),
    )


def _f1(scene: Scene | None, other: Scene | None) -> float:
    if scene is None or other is None:
        return 0.0
    number = len(scene.objects) + len(other.objects)
    return 2 * len({*scene.objects} & {*other.objects}) / number if number else 1.0


def _consistency(answered: Sequence[_Step], right: Sequence[Scene]) -> float:
    shares = []
    for (before, after), (scene, following) in zip(
        pairwise(answered), pairwise(right), strict=False
    ):
        if before.picture is None or after.picture is None:
            shares.append(0.0)
            continue
        (first, there), (second, here) = (
            (own.scene.objects, own.centers) for own in (before.picture, after.picture)
        )
        alike = [
            (what in first) == (what in second)
            and (what not in first or dist(there[what.cell], here[what.cell]) <= _SHIFT)
            for what in {*scene.objects} & {*following.objects}
        ]
        shares.append(fmean(alike) if alike else 1.0)
    return fmean(shares) if shares else 1.0


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
    step_count: int | None = None,
    most: int = MOST_STEPS,
) -> list[ArenaStep]:
    """The right answer after all knobs have acted on it.

    As in `shapes.degrade`, every decision compares one number in [0, 1), drawn for (seed, step,
    knob), with the knob: what a knob does at some setting it also does at every higher one.
    seed: any non-negative integer; also decides the jitter, one for all images.
    step_count: of the answer; further steps change nothing, later ones are left out.
        None for as many as are right.
    most: the answer is cut after so many.
    Texts and images make mistakes of their own. A step that is left without both is no step, so
    there can be fewer, or none at all.
    """
    changes = solution.changes
    if step_count is not None:
        changes = (*changes, *[keep_scene] * step_count)[:step_count]
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
            scene = degrade_scene(scene, knobs, _image_seed(seed, number))
    if not stopped and _draws(seed, len(changes))["surplus"] < knobs.surplus:
        steps.append(_step(scene, knobs, seed, len(changes)))
    return [(text, image) for text, image in steps if text or image is not None][:most]


def _draws(seed: int, number: int) -> Mapping[str, float]:
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAM, number))))
    return dict(zip(_DRAWS, source.random(len(_DRAWS)).tolist(), strict=True))


def _step(scene: Scene, knobs: AnswerDegradation, seed: int, number: int) -> ArenaStep:
    draws = _draws(seed, number)
    text, image = "", None
    text_seed, image_seed = derived_seed(seed, f"text {number}"), _image_seed(seed, number)
    if draws["no_text"] >= knobs.no_text and not is_blank(knobs, text_seed):
        text = caption(degrade_scene(scene, knobs, text_seed))
    if draws["no_image"] >= knobs.no_image:
        image = ImageArtifact(np.zeros((SIDE, SIDE, 3), np.uint8))
        if not is_blank(knobs, image_seed):
            image = render(degrade_scene(scene, knobs, image_seed), seed)
    return text, image


def _image_seed(seed: int, number: int) -> int:
    return derived_seed(seed, f"image {number}")
