"""The rule-based describer, generator, encoder, detector and VQA model of scenes.

Where a data set is constructed, the describer replies in JSON: it names the patterns of a scene by
their rules, and mislabels as its knob says; the writer of `arena_models` summarizes names of
patterns by how often they were given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure, ImageArtifact
from pytest_cepbench.artifacts.answer import read_objects
from pytest_cepbench.datasets.shapes import (
    Degradation,
    Scene,
    caption,
    degrade_scene,
    features,
    is_blank,
    object_boxes,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.datasets.shapes.degrade import Knobs
from pytest_cepbench.datasets.shapes.questions import VERSION as QUESTIONS_VERSION
from pytest_cepbench.datasets.shapes.questions import answer_question
from pytest_cepbench.datasets.shapes.samples import PATTERN_NAMES, PATTERN_SENTENCES, scene_patterns
from pytest_cepbench.datasets.shapes.scene import SHAPES, SIDE
from pytest_cepbench.errors import RoleError, unknown_name
from pytest_cepbench.models.protocols import FloatArray, ImageLike, Piece, Question, VqaQuestion

_STREAM = 5  # apart from the draws of scenes, answers and verdicts, which may have the same seeds


def _read(piece: Piece) -> Scene:
    """The scene that a text tells of or an image shows."""
    if isinstance(piece, str):
        return parse_caption(piece)
    return parse_image(ImageArtifact.from_pil(piece))


@dataclass(frozen=True)
class DescriberKnobs(Degradation):
    """The knobs of scenes, and one of labels; probabilities in [0, 1].

    mislabel: that a pattern of the world which an image has is left out, and that one which it has
        not is named. Of each pattern by itself; of captions nothing changes.
    """

    mislabel: float = 0.0


@dataclass(frozen=True)
class ShapesDescriber:
    """Describes the scene of an image, or names its patterns, degraded by its parameters."""

    knobs: DescriberKnobs

    def describe(
        self,
        images: Sequence[Image.Image],
        prompt: str,  # noqa: ARG002 - the Protocol's; there is one way to describe a scene
        seeds: Sequence[int],
    ) -> list[str]:
        """Caption of each image; the empty text where the answer is blank."""
        scenes = self._scenes(images, seeds)
        return ["" if scene is None else caption(scene) for scene in scenes]

    def describe_json(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],  # noqa: ARG002 - the Protocol's; the schema says what is asked for
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> list[str]:
        """Caption and patterns of each image with a reason for each, as JSON; the empty text where
        the answer is blank.

        schema: with an `enum` of names, no other name is given; capitals do not count.
        """
        closed, replies = _enum_of(schema), []
        for scene, seed in zip(self._scenes(images, seeds), seeds, strict=True):
            if scene is None:
                replies.append("")
                continue
            names: Sequence[str] = labelled_patterns(scene, self.knobs.mislabel, seed)
            if closed is not None:
                known = {name.casefold(): name for name in closed}
                names = [known[name.casefold()] for name in names if name.casefold() in known]
            replies.append(_reply({"description": caption(scene)}, names, schema))
        return replies

    def _scenes(
        self, images: Sequence[Image.Image], seeds: Sequence[int]
    ) -> Iterator[Scene | None]:
        """The scene that is told of instead of each image's; None where the answer is blank."""
        for image, seed in zip(images, seeds, strict=True):
            blank = is_blank(self.knobs, seed)
            yield None if blank else degrade_scene(_read(image), self.knobs, seed)


@dataclass(frozen=True)
class ShapesGenerator:
    """Draws the scene of a text, degraded by its parameters; the seed also decides the jitter."""

    knobs: Degradation

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike]:
        """(64, 64, 3) uint8 for each text; all black where the answer is blank."""
        return [
            np.zeros((SIDE, SIDE, 3), np.uint8)
            if is_blank(self.knobs, seed)
            else render(degrade_scene(parse_caption(text), self.knobs, seed), seed).pixels
            for text, seed in zip(texts, seeds, strict=True)
        ]


@dataclass(frozen=True)
class ShapesEncoder:
    """Features of the scene that an image shows or a text tells of, in one space."""

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([features(_read(image)) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([features(parse_caption(text)) for text in texts])


@dataclass(frozen=True)
class ShapesDetector:
    """Finds the shapes that are asked for by their names, and says their color."""

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections]:
        """Every object of a shape that is asked for, with score 1.0, row by row from the top left.

        Raises RoleError for a query that is no shape of the world.
        """
        for query in {query for asked in queries for query in asked}:
            if query not in SHAPES:
                raise RoleError(
                    f"shapes: detects by plain name: {unknown_name('shape', query, SHAPES)}"
                )
        return [
            Detections(
                tuple(
                    Detection(box.what.shape, 1.0, box.box, color=box.what.color)
                    for box in object_boxes(ImageArtifact.from_pil(image))
                    if box.what.shape in asked
                )
            )
            for image, asked in zip(images, queries, strict=True)
        ]


def labelled_patterns(scene: Scene, mislabel: float, seed: int) -> tuple[str, ...]:
    """The patterns of a scene, each turned into its opposite with the probability `mislabel`."""
    patterns = scene_patterns(scene)
    if not mislabel:
        return patterns
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAM))))
    wrong = zip(PATTERN_NAMES, source.random(len(PATTERN_NAMES)) < mislabel, strict=True)
    return tuple(name for name, turned in wrong if (name in patterns) != turned)


def summarize_patterns(question: Question, schema: Mapping[str, Any]) -> str | Failure:
    """The JSON reply to a question for a summary: the most frequent names, at most so many.

    question: one of its texts holds `{"frequencies": {name: count}, "most": number}`.
    A failure for any other question.
    """
    for piece in question:
        for document in read_objects(piece) if isinstance(piece, str) else ():
            counts, most = document.get("frequencies"), document.get("most")
            if isinstance(counts, dict) and isinstance(most, int):
                ordered = sorted(counts, key=lambda name: (-counts[name], name))[:most]
                return _reply({}, ordered, schema)
    return Failure("refused", "no frequencies of patterns in the question")


def _reply(head: Mapping[str, str], names: Sequence[str], schema: Mapping[str, Any]) -> str:
    """A reply in the form of a schema: names of patterns and their sentences in objects."""
    fields: Mapping[str, Any] = schema["properties"]["image_pattern"]["items"]["properties"]
    word = next(name for name in fields if name not in ("name", "merged_from"))
    more: dict[str, Any] = {"merged_from": []} if "merged_from" in fields else {}
    patterns = [{"name": name, word: PATTERN_SENTENCES.get(name, name), **more} for name in names]
    return json.dumps({**head, "image_pattern": patterns})


def _enum_of(schema: Any) -> Sequence[str] | None:
    """The closed list of names somewhere in a schema; None where it has none."""
    if not isinstance(schema, Mapping):
        return None
    if "enum" in schema:
        names: Sequence[str] = schema["enum"]
        return names
    within = (_enum_of(value) for value in schema.values())
    return next((names for names in within if names is not None), None)


@dataclass(frozen=True)
class VqaKnobs(Knobs):
    """Faults of a VQA model, numbers in [0, 1].

    yes: probability that it keeps for "yes", whatever it is shown; 1 says yes to all.
    doubt: probability that it takes away from each of its answers, and gives to none.
    Raises ValueError naming the knob that is out of range.
    """

    yes: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True)
class ShapesVqa:
    """Answers questions of the world's grammar by its rules, degraded by its parameters."""

    versions: ClassVar = {"questions": QUESTIONS_VERSION}
    knobs: VqaKnobs

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[list[float] | Failure]:
        """Probabilities of the answers that are looked for; a failure for a foreign question."""
        results: list[list[float] | Failure] = []
        for piece, asked in zip(pieces, questions, strict=True):
            scene, probabilities = _read(piece), []
            for question in asked:
                right = answer_question(scene, question.text)
                if right is None:
                    detail = f"no question of the shapes world: {question.text!r:.80}"
                    results.append(Failure("refused", detail))
                    break
                wanted = {answer.strip().lower() for answer in question.answers}
                seen, agreed = float(right in wanted), float("yes" in wanted)
                mixed = (1.0 - self.knobs.yes) * seen + self.knobs.yes * agreed
                probabilities.append(mixed * (1.0 - self.knobs.doubt))
            else:
                results.append(probabilities)
        return results
