"""Validation of models' outputs, once where they enter: an artifact, or the failure it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import (
    Detection,
    Detections,
    Failure,
    ImageArtifact,
    Mask,
    canonical_json,
)
from pytest_cepbench.artifacts.answer import (
    MOST_STEPS,
    Answer,
    StoredStep,
    only_reasoning,
    read_answer,
    steps_without_reasoning,
)
from pytest_cepbench.artifacts.outcome import CriteriaScores, Winner
from pytest_cepbench.errors import CepError, ImageError, ModelError, in_words, is_own_bug
from pytest_cepbench.models.protocols import AnswerStep, Reply, VqaQuestion
from pytest_cepbench.store import Store

TEXT_ROLES = ("describer", "writer", "interleaver")
"""Roles whose results are texts of a model, or answers with such."""

LONGEST_TEXT = 100_000
"""Characters of a text that are drawn, compared and shown, some 15,000 words: counting the words of
megabytes takes minutes. Stores keep the whole text."""

_DIGITS = 6
"""Of a probability, as they are kept."""


def admit_reply(output: object, admit: Callable[[object], object]) -> object:
    """Apply `admit` to a bare result, or to the one in a reply, which stays around it."""
    if isinstance(output, Reply):
        return replace(output, value=admit(output.value))
    return admit(output)


def admit_text(value: object) -> str | Failure:
    """A description; an empty one is a failure. Raises ModelError for what is no string."""
    if isinstance(value, Failure):
        return value
    if not isinstance(value, str):
        raise ModelError(
            "a describer or writer returns str for each input, this one returned "
            f"{type(value).__name__}"
        )
    if not value.strip():
        return Failure("empty-text", "nothing but white space" if value else "no text at all")
    return value


def admit_winner(value: object) -> str | Failure:
    """A judge's verdict. Raises ModelError for any other value than the four of `Winner`."""
    if isinstance(value, Failure) or (isinstance(value, str) and value in get_args(Winner)):
        return value
    known = ", ".join(map(repr, get_args(Winner)))
    raise ModelError(
        f"a judge returns one of {known} for each battle, this one returned {value!r:.80}"
    )


def admit_scores(value: object) -> CriteriaScores | Failure:
    """A judge's scores of one answer; in a mapping, what is no score fails its criterion alone.

    Raises ModelError for what is neither, and for a criterion that does not exist.
    """
    if isinstance(value, Failure | CriteriaScores):
        return value
    if not isinstance(value, Mapping):
        raise ModelError(
            "a judge returns CriteriaScores or numbers by criterion for each answer, this one "
            f"returned {value!r:.80}"
        )
    try:
        return CriteriaScores.of(value)
    except ValueError as error:
        raise ModelError(f"a judge's scores: {error}") from error


def admit_answers(value: object, questions: Sequence[VqaQuestion]) -> str | Failure:
    """The probabilities that a VQA model gives for one picture or text, as canonical JSON.

    One that is not in [0, 1] makes them a failure. Raises ModelError where there is not one number
    for each question.
    """
    if isinstance(value, Failure):
        return value
    numbers = list(value) if isinstance(value, Sequence | np.ndarray) else []
    if len(numbers) != len(questions) or not all(isinstance(n, Real) for n in numbers):
        raise ModelError(
            f"a VQA model returns a probability for each question, this one returned {value!r:.80} "
            f"for {len(questions)} questions"
        )
    probabilities = [float(number) for number in numbers]
    if not all(0.0 <= probability <= 1.0 for probability in probabilities):
        return Failure("bad-answer", f"a probability is not in [0, 1]: {probabilities!r:.80}")
    return canonical_json([round(probability, _DIGITS) for probability in probabilities])


def admit_image(value: object) -> ImageArtifact | Failure:
    """A generated image. NaN pixels, an all-black image and an impossible shape are failures.

    An all-black image is what safety checkers and overflowing half-precision decoders give.
    Raises ModelError when it is neither a Pillow image nor an array.
    """
    if isinstance(value, Failure):
        return value
    try:
        if isinstance(value, Image.Image):
            image = ImageArtifact.from_pil(value)
        elif isinstance(value, np.ndarray):
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                return Failure("nan-image", "pixels are NaN or infinite")
            image = ImageArtifact(_to_bytes(value))
        else:
            raise ModelError(
                "a model returns Pillow images or arrays where it draws, this one returned "
                f"{type(value).__name__}"
            )
    except ImageError as error:
        return Failure("bad-image", str(error))
    if not image.pixels.any():
        return Failure("blank-image", "every pixel is black")
    return image


def admit_drawing(output: object, admit: Callable[[object], object] = admit_image) -> object:
    """A generated image as `admit_image` takes it; in its reply, where it has one.

    Where its class, which may be a user's own, raises as its pixels are read, it is a failure that
    another run may not meet.

    admit: as of `admit_reply`, for what holds images.
    """
    try:
        return admit_reply(output, admit)
    except CepError:
        raise
    except Exception as error:
        if is_own_bug(error):
            raise
        return Reply(Failure("exception", in_words(error)), passing=True)


@dataclass(frozen=True)
class AdmittedAnswer:
    """A valid answer whose images are not stored yet.

    steps: (text, image or None) of each; some may be reasoning alone.
    lost: why images were left out of their steps.
    cut: steps that were left out at the end.
    """

    steps: tuple[tuple[str, ImageArtifact | None], ...]
    lost: tuple[Failure, ...] = ()
    cut: int = 0

    def store(self, store: Store) -> Answer:
        """Store its images; returns the answer. Raises StoreFullError without space."""
        return Answer(
            tuple(
                StoredStep(text, None if image is None else store.put_image(image))
                for text, image in self.steps
            )
        )


def admit_answer(
    value: object, most: int = MOST_STEPS, *, hides_reasoning: bool = False
) -> AdmittedAnswer | Failure:
    """An interleaved answer, cut after so many steps.

    hides_reasoning: whether reasoning is no part of the answer. It keeps its place, for
        `answer_in`, but does not count as steps, and images in it are left out.

    A step without text and image is none, and an image that `admit_image` does not take is left out
    of its step. An answer without steps is a failure: the first image's, where it lost one. Raises
    ModelError for what is no sequence of steps.
    """
    if isinstance(value, Failure):
        return value
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ModelError(
            f"an interleaver returns steps for each question, this one returned {value!r:.80}"
        )
    steps: list[tuple[str, ImageArtifact | None]] = []
    lost: list[Failure] = []
    for step in value:
        if not isinstance(step, AnswerStep) or not isinstance(step.text, str):
            raise ModelError(f"the steps of an answer are AnswerStep objects, got {step!r:.80}")
        image = None if step.image is None else admit_image(step.image)
        if isinstance(image, Failure):
            lost.append(image)
            image = None
        text = step.text.strip()
        if text or image is not None:
            steps.append((text, image))
    if not steps:
        return lost[0] if lost else Failure("empty-text", "an answer without steps")
    answer = steps_without_reasoning(steps) if hides_reasoning else steps
    counted = [number for number, step in enumerate(answer) if step is not None]
    end = counted[most] if len(counted) > most else len(steps)
    kept = (
        (text, None if step is None else step[1])
        for (text, _), step in zip(steps[:end], answer, strict=False)
    )
    whole = tuple(step for step in kept if step[0] or step[1] is not None)
    return AdmittedAnswer(whole, tuple(lost), max(0, len(counted) - most))


def answer_in(stored: str, role: str) -> str | Failure:
    """A stored text, or the canonical JSON of an answer, without the reasoning in it.

    role: one of `TEXT_ROLES`, that gave it.
    """
    if role != "interleaver":
        return read_answer(stored)
    whole = [(step.text, step.image) for step in Answer.from_json(stored).steps]
    steps = [step for step in steps_without_reasoning(whole) if step is not None]
    if not steps:
        return only_reasoning("\n".join(text for text, _ in whole))
    return stored if steps == whole else Answer(tuple(StoredStep(*s) for s in steps)).to_json()


def shortened(answer: str, role: str) -> str:
    """A text, or the canonical JSON of an answer, with at most `LONGEST_TEXT` characters a text."""
    if len(answer) <= LONGEST_TEXT:
        return answer
    if role != "interleaver":
        return answer[:LONGEST_TEXT]
    steps = Answer.from_json(answer).steps
    return Answer(tuple(StoredStep(s.text[:LONGEST_TEXT], s.image) for s in steps)).to_json()


def admit_vectors(value: object, expected: int) -> list[npt.NDArray[np.float32] | Failure]:
    """Features, one row per input. Rows that are zero or not finite have no direction: failures.

    Raises ModelError when it is not an (expected, dimension) array of numbers.
    """
    array = np.asarray(value)
    fits = array.ndim == 2 and len(array) == expected and array.shape[1] > 0
    if not fits or array.dtype.kind not in "fiu":
        raise ModelError(
            f"an encoder returns ({expected}, dimension) numbers for {expected} inputs, this one "
            f"returned {array.shape} {array.dtype}"
        )
    with np.errstate(over="ignore"):  # what overflows float32 is infinite and counted below
        rows = array.astype(np.float32)
    return [_admit_vector(row) for row in rows]


def _admit_vector(row: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | Failure:
    if not np.isfinite(row).all():
        return Failure("nan-vector", "features are NaN or infinite")
    if not row.any():
        return Failure("nan-vector", "features are all zero")
    return row


def admit_detections(value: object, queries: Sequence[Sequence[str]]) -> list[Detections | Failure]:
    """Detections, one result per image, most confident first, their numbers plain floats.

    queries: of each image. A box that is none (NaN, inside out) or a score outside
    [0, 1] makes the image a failure. Raises ModelError when there is not one `Detections` or
    `Failure` for each image, or one of them holds something else, or answers what was not asked.
    """
    results = list(value) if isinstance(value, Iterable) else [value]
    if len(results) != len(queries):
        raise ModelError(
            f"a detector returns one result for each image, this one returned {len(results)} for "
            f"{len(queries)} images"
        )
    return [_admit_detections(*pair) for pair in zip(results, queries, strict=True)]


def _admit_detections(value: object, queries: Sequence[str]) -> Detections | Failure:
    if isinstance(value, Failure):
        return value
    if not isinstance(value, Detections):
        kind = type(value).__name__
        raise ModelError(f"a detector returns Detections for each image, this one returned {kind}")
    try:
        return Detections.sort([_plain_detection(item, queries) for item in value.found])
    except ValueError as error:
        return Failure("bad-boxes", str(error))
    except TypeError as error:
        raise ModelError(f"a detector's boxes and scores are numbers: {error}") from error


def _plain_detection(item: Any, queries: Sequence[str]) -> Detection:
    """A detection with built-in numbers: the store's text has no others."""
    if not isinstance(item, Detection):
        raise ModelError(
            f"Detections hold Detection objects, a detector's held a {type(item).__name__}"
        )
    if item.query not in queries:
        raise ModelError(
            f"a detector answers the queries word for word, this one answered {item.query!r}; "
            f"asked were {', '.join(map(repr, queries))}"
        )
    mask: Any = item.mask
    color: Any = item.color
    if not (isinstance(mask, Mask | None) and isinstance(color, str | None)):
        raise ModelError(
            "a detection's mask is a Mask and its color a text, where it has them; a detector "
            f"returned {type(mask).__name__} and {type(color).__name__}"
        )
    left, top, right, bottom = map(float, item.box)
    return Detection(item.query, float(item.score), (left, top, right, bottom), mask, color)


def _to_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Floats in [0, 1] as bytes, rounded as diffusers does; bytes as they are."""
    if array.dtype.kind != "f":
        return array
    scaled: npt.NDArray[np.uint8] = (array.clip(0.0, 1.0) * 255).round().astype(np.uint8)
    return scaled
