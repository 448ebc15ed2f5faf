"""Roles: what each is asked, and what becomes of a reply, in one table (`ROLES`).

Outputs are checked once, where they enter: each is an artifact, or the failure that it is. A new
role is an entry of the table, its Protocol, and its adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import (
    Detection,
    Detections,
    Failure,
    ImageArtifact,
    Mask,
    canonical_json,
)
from pytest_cepbench.artifacts.answer import (
    Answer,
    StoredStep,
    only_reasoning,
    read_answer,
    steps_without_reasoning,
)
from pytest_cepbench.artifacts.modality import check_image, check_made
from pytest_cepbench.artifacts.outcome import CriteriaScores, Winner
from pytest_cepbench.errors import CepError, ModelError, in_words, is_own_bug
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import (
    AnswerStep,
    Describer,
    Detector,
    Editor,
    Encoder,
    Generator,
    Interleaver,
    Judge,
    Reply,
    RoleName,
    Vqa,
    VqaQuestion,
    Writer,
)
from pytest_cepbench.models.torch_runtime import by_kind
from pytest_cepbench.store import ArtifactRef, Store

LONGEST_TEXT = 100_000
"""Characters of a text that are drawn, compared and shown, some 15,000 words: counting the words of
megabytes takes minutes. Stores keep the whole text."""


def in_reply(output: object, check: Callable[[object], object]) -> object:
    """Apply `check` to a bare result, or to the one in a reply, which stays around it.

    A failure stays itself.
    """
    value = output.value if isinstance(output, Reply) else output
    if isinstance(value, Failure):
        return output
    return replace(output, value=check(value)) if isinstance(output, Reply) else check(value)


def check_text(value: object) -> str | Failure:
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


def _winner(_: Any, __: BoundRole, value: object) -> str:
    """A judge's verdict. Raises ModelError for any other value than the four of `Winner`."""
    if isinstance(value, str) and value in get_args(Winner):
        return value
    raise ModelError(
        f"a judge returns one of {get_args(Winner)} for each battle, this one {value!r:.80}"
    )


def _scores(_: Any, __: BoundRole, value: object) -> str:
    """A judge's scores of one answer; in a mapping, what is no score fails its criterion alone.

    Raises ModelError for what is neither, and for a criterion that does not exist.
    """
    if isinstance(value, Mapping):
        try:
            value = CriteriaScores.of(value)
        except ValueError as error:
            raise ModelError(f"a judge's scores: {error}") from error
    if not isinstance(value, CriteriaScores):
        raise ModelError(
            "a judge returns CriteriaScores or numbers by criterion for each answer, this one "
            f"returned {value!r:.80}"
        )
    return value.to_json()


def _probabilities(asked: Any, _: BoundRole, value: object) -> str | Failure:
    """The probabilities that a VQA model gives for one picture or text, as canonical JSON.

    One that is not in [0, 1] makes them a failure. Raises ModelError where there is not one number
    for each question.
    """
    questions: Sequence[VqaQuestion] = asked[1]
    numbers = list(value) if isinstance(value, Sequence | np.ndarray) else []
    if len(numbers) != len(questions) or not all(isinstance(n, Real) for n in numbers):
        raise ModelError(
            f"a VQA model returns a probability for each question, this one returned {value!r:.80} "
            f"for {len(questions)} questions"
        )
    probabilities = [float(number) for number in numbers]
    if not all(0.0 <= probability <= 1.0 for probability in probabilities):
        return Failure("bad-answer", f"a probability is not in [0, 1]: {probabilities!r:.80}")
    return canonical_json([round(probability, 6) for probability in probabilities])


def check_drawn(output: object, check: Callable[[object], object] = check_made) -> object:
    """A generated image or sound as `check_made` takes it; in its reply, where it has one.

    Where its class, which may be a user's own, raises as its pixels are read, it is a failure that
    another run may not meet.

    check: as of `in_reply`, for what holds images.
    """
    try:
        return in_reply(output, check)
    except CepError:
        raise
    except Exception as error:
        if is_own_bug(error):
            raise
        return Reply(Failure("exception", in_words(error)), passing=True)


@dataclass(frozen=True)
class CheckedAnswer:
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
                StoredStep(text, None if image is None else store.put_artifact(image))
                for text, image in self.steps
            )
        )


def _answer(asked: Any, bound: BoundRole, value: object) -> CheckedAnswer | Failure:
    """An interleaved answer, cut after the most steps that were asked for.

    Where reasoning is no part of the answer it keeps its place, for `answer_in`, but does not count
    as steps, and images in it are left out.

    A step without text and image is none, and an image that `check_image` does not take is left out
    of its step. An answer without steps is a failure: the first image's, where it lost one. Raises
    ModelError for what is no sequence of steps.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ModelError(
            f"an interleaver returns steps for each question, this one returned {value!r:.80}"
        )
    steps: list[tuple[str, ImageArtifact | None]] = []
    lost: list[Failure] = []
    for step in value:
        if not isinstance(step, AnswerStep) or not isinstance(step.text, str):
            raise ModelError(f"the steps of an answer are AnswerStep objects, got {step!r:.80}")
        image = None if step.image is None else check_image(step.image)
        if isinstance(image, Failure):
            lost.append(image)
            image = None
        text = step.text.strip()
        if text or image is not None:
            steps.append((text, image))
    if not steps:
        return lost[0] if lost else Failure("empty-text", "an answer without steps")
    most = asked[1].most
    answer = steps_without_reasoning(steps) if bound.hides_reasoning else steps
    counted = [number for number, step in enumerate(answer) if step is not None]
    end = counted[most] if len(counted) > most else len(steps)
    kept = (
        (text, None if step is None else step[1])
        for (text, _), step in zip(steps[:end], answer, strict=False)
    )
    whole = tuple(step for step in kept if step[0] or step[1] is not None)
    return CheckedAnswer(whole, tuple(lost), max(0, len(counted) - most))


def _steps_alone(stored: str) -> str | Failure:
    """The canonical JSON of an answer without the reasoning in its steps."""
    whole = [(step.text, step.image) for step in Answer.from_json(stored).steps]
    steps = [step for step in steps_without_reasoning(whole) if step is not None]
    if not steps:
        return only_reasoning("\n".join(text for text, _ in whole))
    return stored if steps == whole else Answer(tuple(StoredStep(*s) for s in steps)).to_json()


def _steps_beginning(answer: str) -> str:
    """The canonical JSON of an answer, with at most `LONGEST_TEXT` characters a text."""
    if len(answer) <= LONGEST_TEXT:
        return answer
    steps = Answer.from_json(answer).steps
    return Answer(tuple(StoredStep(s.text[:LONGEST_TEXT], s.image) for s in steps)).to_json()


def check_vectors(value: object, expected: int) -> list[npt.NDArray[np.float32] | Failure]:
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
    return [
        Failure("nan-vector", "features are NaN or infinite")
        if not np.isfinite(row).all()
        else row
        if row.any()
        else Failure("nan-vector", "features are all zero")
        for row in rows
    ]


def check_detections(value: object, queries: Sequence[str]) -> Detections | Failure:
    """Detections in one image, most confident first, their numbers plain floats.

    queries: that were asked. A box that is none (NaN, inside out) or a score outside [0, 1] makes
    them a failure. Raises ModelError for what holds something else, or answers what was not asked.
    """
    if isinstance(value, Failure):
        return value
    if not isinstance(value, Detections):
        kind = type(value).__name__
        raise ModelError(f"a detector returns Detections for each image, this one returned {kind}")

    detections: list[Detection] = []
    try:
        for item in value.found:
            if not isinstance(item, Detection) or item.query not in queries:
                raise ModelError(
                    "Detections hold Detection objects that answer the queries word for word, this "
                    f"one answered {item!r:.80}; asked were {', '.join(map(repr, queries))}"
                )
            mask: Any = item.mask
            color: Any = item.color
            if not (isinstance(mask, Mask | None) and isinstance(color, str | None)):
                raise ModelError(
                    "a detection's mask is a Mask and its color a text, where it has them; a "
                    f"detector returned {type(mask).__name__} and {type(color).__name__}"
                )
            # With built-in numbers: the store's text has no others.
            left, top, right, bottom = map(float, item.box)
            box = (left, top, right, bottom)
            detections.append(Detection(item.query, float(item.score), box, mask, color))
        return Detections.sort(detections)
    except ValueError as error:
        return Failure("bad-boxes", str(error))
    except TypeError as error:
        raise ModelError(f"a detector's boxes and scores are numbers: {error}") from error


# -- the table -----------------------------------------------------------------------------------

Check = Callable[[Sequence[object], Sequence[Any], BoundRole], Sequence[object]]
"""Makes of a call's outputs, of its inputs and of the bound role what is stored, an item each."""


@dataclass(frozen=True)
class Method:
    """One way to ask the models of a role.

    name: of the model's method.
    inputs: names of its sequences; a step loads an item of the one, a tuple of items of several.
    check: of its outputs.
    shared: names of arguments that stand for all inputs of a call.
    seeds: whether the last argument is a seed for each input.
    draws: whether its results are images or sounds, which the thread that stores them checks.
    reads_texts: whether its inputs are texts that a model may not read to their end, see
        `CountsTokens`.
    optional: whether models may lack it.
    otherwise: asks a model that lacks it by another method, with the same arguments.
    convert: makes of outputs what `check` takes, as part of the call: a tensor is made an array by
        its own library.
    kept: class of its results in a store, but for failures.
    """

    name: str
    inputs: tuple[str, ...]
    check: Check = lambda outputs, inputs, bound: outputs  # noqa: ARG005
    shared: tuple[str, ...] = ()
    seeds: bool = True
    draws: bool = False
    reads_texts: bool = False
    optional: bool = False
    otherwise: Callable[..., object] | None = None
    convert: Callable[[Any], object] = lambda outputs: outputs
    kept: type = str

    def __str__(self) -> str:
        """With its arguments, for people."""
        seeds = ("seeds",) * self.seeds
        return f"{self.name}({', '.join((*self.inputs, *self.shared, *seeds))})"

    def arguments(
        self, inputs: Sequence[Any], shared: Sequence[Any], seeds: Sequence[int]
    ) -> list[Any]:
        """The arguments of a call for inputs of steps and their seeds."""
        columns = [inputs] if len(self.inputs) == 1 else list(zip(*inputs, strict=True))
        assert len(shared) == len(self.shared), f"{self} is asked with {len(shared)} more"
        return [*columns, *shared, *([seeds] if self.seeds else [])]

    def of(self, model: object) -> Callable[..., object]:
        """The model's method, or what stands for it."""
        own: Callable[..., object] | None = getattr(model, self.name, None)
        if own is None and self.otherwise is not None:
            return partial(self.otherwise, model)
        assert own is not None, f"a {type(model).__name__} has no {self.name}"
        return own


@dataclass(frozen=True)
class Role:
    """What a role's models are asked, and how their stored results are read.

    protocol: that its models satisfy.
    methods: by which they are asked.
    answer_in: a stored text without the reasoning in it; None of a role that gives no texts.
    beginning: a text with at most `LONGEST_TEXT` characters, or an answer of such.
    """

    protocol: type
    methods: tuple[Method, ...]
    answer_in: Callable[[str], str | Failure] | None = None
    beginning: Callable[[str], str] = lambda text: text[:LONGEST_TEXT]

    @property
    def required(self) -> tuple[Method, ...]:
        """The methods that no model of the role lacks."""
        return tuple(method for method in self.methods if not method.optional)


def _each(
    check: Callable[[Any, BoundRole, object], object],
    take: Callable[[object, Callable[[object], object]], object] = in_reply,
) -> Check:
    """Check each output by itself. check: of the input, the bound role and the output."""

    def checked(outputs: Sequence[object], inputs: Sequence[Any], bound: BoundRole) -> Any:
        if len(outputs) != len(inputs):
            return outputs  # which is refused as it is for every role
        return [take(o, partial(check, i, bound)) for o, i in zip(outputs, inputs, strict=True)]

    return checked


def _describe_by_prompt(
    model: Describer,
    images: Sequence[Any],
    prompts: Sequence[str],
    _: Mapping[str, Any],
    seeds: Sequence[int],
) -> list[object]:
    """As `describe_json`, of a describer that cannot be held to a schema."""

    def answer(own: Sequence[int]) -> Sequence[object]:
        return model.describe([images[i] for i in own], prompts[own[0]], [seeds[i] for i in own])

    return by_kind(prompts, answer)


_TEXT = _each(lambda _, __, value: check_text(value))
_VECTORS: Check = lambda outputs, inputs, _: check_vectors(outputs, len(inputs))  # noqa: E731
_BOXES = _each(lambda asked, _, value: check_detections(value, asked[1]))

_describe_json = partial(Method, optional=True, otherwise=_describe_by_prompt)
_write_json = partial(
    Method,
    optional=True,
    otherwise=lambda model, questions, prompt, _, seeds: model.write(questions, prompt, seeds),
)
_encode = partial(Method, check=_VECTORS, seeds=False, convert=np.asarray, kept=np.ndarray)
_draw = partial(Method, draws=True, kept=ArtifactRef)

ROLES: Mapping[RoleName, Role] = {
    "describer": Role(
        Describer,
        (
            Method("describe", ("images",), _TEXT, ("prompt",)),
            _describe_json("describe_json", ("images", "prompts"), _TEXT, ("schema",)),
        ),
        answer_in=read_answer,
    ),
    "generator": Role(Generator, (_draw("generate", ("texts",), reads_texts=True),)),
    "encoder": Role(
        Encoder,
        (
            _encode("encode_images", ("images",)),
            _encode("encode_sounds", ("sounds",), optional=True),
            _encode("encode_texts", ("texts",), reads_texts=True),
        ),
    ),
    "detector": Role(
        Detector,
        (Method("detect", ("images", "queries"), _BOXES, seeds=False, kept=Detections),),
    ),
    "judge": Role(
        Judge,
        (
            Method("judge", ("battles",), _each(_winner)),
            Method("score_answers", ("answers",), _each(_scores), optional=True),
        ),
    ),
    "writer": Role(
        Writer,
        (
            Method("write", ("questions",), _TEXT, ("prompt",)),
            _write_json("write_json", ("questions",), _TEXT, ("prompt", "schema")),
        ),
        answer_in=read_answer,
    ),
    "editor": Role(Editor, (_draw("edit", ("images", "texts")),)),
    "interleaver": Role(
        Interleaver,
        (Method("interleave", ("questions", "limits"), _each(_answer, take=check_drawn)),),
        answer_in=_steps_alone,
        beginning=_steps_beginning,
    ),
    "vqa": Role(
        Vqa, (Method("answer", ("pieces", "questions"), _each(_probabilities), seeds=False),)
    ),
}
"""Every role. A result becomes an artifact or a failure by `check` and is stored under its step's
key (`chains/steps.py`, `key_of`): images and answers by their digests, all else as it is."""

METHODS: Mapping[str, Method] = {
    method.name: method for role in ROLES.values() for method in role.methods
}
"""By name: no two roles share a method."""
