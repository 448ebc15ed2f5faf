"""Roles of models in a chain: the Protocols that adapters and users' own models satisfy.

Roles take Pillow images and plain strings; the chains turn results into artifacts. A role returns
one result per input, in order: a `Failure` where a single input fails, and a `Reply` where a result
comes with usage, provenance or remarks. An exception means that the whole batch failed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.artifacts.outcome import CriteriaScores, Winner
from pytest_cepbench.models import ROLE_NAMES as ROLE_NAMES  # noqa: PLC0414 - needed with these
from pytest_cepbench.models import RoleName as RoleName  # noqa: PLC0414
from pytest_cepbench.models.fingerprint_check import CoveredFiles

UNIFIED_ROLES: tuple[RoleName, ...] = ("describer", "generator")
"""Roles of a unified model: it describes and generates."""


def is_unified(roles: Collection[RoleName]) -> bool:
    """True where a model with these roles describes and generates."""
    return set(UNIFIED_ROLES) <= set(roles)


SHORT_FINGERPRINT = 16
"""Digits of a fingerprint that tell models apart for people, baselines and the store."""

CODE = "code"
"""In the provenance of a model of the user's own: its code, which its fingerprint should follow."""

CUT: Mapping[str, str] = {"finish": "length"}
"""In the provenance of a text that ends at the limit of its length, and not by itself."""

Warn = Callable[[Sequence[Mapping[str, str]]], Sequence[str]]
"""Given all different provenances that results have."""

FloatArray = npt.NDArray[np.floating[Any]]

ImageLike = Image.Image | npt.NDArray[Any]
"""A Pillow image, (h, w, 3) uint8, or (h, w, 3) floats in [0, 1]."""


@dataclass(frozen=True)
class Usage:
    """The usage of a model for some answers, as far as the model counts it; usages add up.

    requests: sent to a server.
    retries: requests that repeat a failed one.
    input_tokens, output_tokens, images: as the server counts them.
    cost: in the currency of the user's prices.
    """

    requests: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    images: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(operator.add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: Usage) -> Usage:
        difference = Usage(*map(operator.sub, vars(self).values(), vars(other).values()))
        return replace(difference, cost=max(0.0, difference.cost))  # rounding could leave -1e-17


@dataclass(frozen=True)
class Reply:
    """A result with its usage, provenance and remarks.

    value: the result itself, or a `Failure`.
    usage: of this result.
    provenance: kept beside the stored result, never in a key.
    passing: whether a failure may succeed at another try, so that it is counted and not stored.
    remarks: sentences for people, shown once in a run.
    """

    value: Any
    usage: Usage = Usage()
    provenance: Mapping[str, str] = field(default_factory=dict)
    passing: bool = False
    remarks: tuple[str, ...] = ()


@runtime_checkable
class Describer(Protocol):
    """Image to text."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> Sequence[str | Failure | Reply]:
        """Describe each RGB image; seeds are per image, below 2**32, ignored where greedy."""
        ...


@runtime_checkable
class JsonDescriber(Describer, Protocol):
    """A describer that can be held to a JSON schema; others are asked for JSON by the prompt."""

    def describe_json(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> Sequence[str | Failure | Reply]:
        """As `describe`, with a prompt for each image.

        Each text should be an object of the JSON schema, and may not be one.
        """
        ...


@runtime_checkable
class Generator(Protocol):
    """Text to image."""

    def generate(
        self, texts: Sequence[str], seeds: Sequence[int]
    ) -> Sequence[ImageLike | Failure | Reply]:
        """Draw each text; each image must depend only on its own text and seed."""
        ...


@runtime_checkable
class Encoder(Protocol):
    """Artifact to vector: (n, dimension) floats, not necessarily normalised, NaN allowed."""

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """Features of each RGB image."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """Features of each text; raises RoleError where the model reads no texts."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """An encoder or generator that can say which texts are longer than it reads.

    Those without this method are taken to read any length.
    """

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Tokens of each text, and the most that are read; without a forward pass."""
        ...


@runtime_checkable
class Detector(Protocol):
    """Image to boxes."""

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> Sequence[Detections | Failure]:
        """Find the objects of each RGB image that answer one of its queries.

        queries: for each image the things to look for ("a photo of a red bench", or the plain name
        of a class where the detector knows a fixed set); at least one, none twice. A detection
        carries the query that it answers, word for word. Raises RoleError for a query that a
        detector of a fixed set of classes does not know.
        """
        ...


Piece = str | Image.Image
"""A part of a question or an answer."""


@dataclass(frozen=True)
class VqaQuestion:
    """A question about a picture or a text, with the answer that is looked for.

    text: the question as the model is asked it.
    answers: spellings of that answer, at least one ("four", "Four", "4").
    """

    text: str
    answers: tuple[str, ...]


@runtime_checkable
class Vqa(Protocol):
    """Questions about a picture (visual question answering), or about a text, to probabilities."""

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> Sequence[Sequence[float] | Failure | Reply]:
        """How likely the model's answer to each question is one of those looked for, in [0, 1].

        pieces: RGB images and texts.
        questions: about each piece, at least one. A model that answers in words alone gives 0 or 1.
        """
        ...


Question = Sequence[Piece]
"""A question: texts and RGB images in reading order."""


@dataclass(frozen=True)
class StepLimit:
    """How many steps an answer may have.

    told: the number that the model is told; None where it decides by itself.
    most: the answer is cut after so many, whatever was told.
    """

    told: int | None = None
    most: int = MOST_STEPS


@dataclass(frozen=True)
class AnswerStep:
    """One step of an interleaved answer, as a model gives it.

    text: empty where the step has none.
    image: None where the step has none.
    """

    text: str = ""
    image: ImageLike | None = None


@runtime_checkable
class Writer(Protocol):
    """Question to text: the text part of an interleaved answer, or any other reply."""

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> Sequence[str | Failure | Reply]:
        """Answer each question with a text; prompt is the system prompt, empty for none."""
        ...


@runtime_checkable
class JsonWriter(Writer, Protocol):
    """A writer that can be held to a JSON schema; others are asked for JSON by the prompt."""

    def write_json(
        self,
        questions: Sequence[Question],
        prompt: str,
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> Sequence[str | Failure | Reply]:
        """As `write`; each text should be an object of the JSON schema, and may not be."""
        ...


@runtime_checkable
class Editor(Protocol):
    """Image and text to image."""

    def edit(
        self, images: Sequence[Image.Image], texts: Sequence[str], seeds: Sequence[int]
    ) -> Sequence[ImageLike | Failure | Reply]:
        """Change each RGB image as its text says; each depends on its own inputs alone."""
        ...


@runtime_checkable
class Interleaver(Protocol):
    """Question to an answer of steps: one model makes texts and images."""

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> Sequence[Sequence[AnswerStep] | Failure | Reply]:
        """Answer each question; each answer depends on its own question, limit and seed alone."""
        ...


@dataclass(frozen=True)
class Battle:
    """Two answers to a question, each a sequence of texts and RGB images in reading order."""

    question: Sequence[Piece]
    first: Sequence[Piece]
    second: Sequence[Piece]


@runtime_checkable
class Judge(Protocol):
    """Two answers to a verdict."""

    def judge(
        self, battles: Sequence[Battle], seeds: Sequence[int]
    ) -> Sequence[Winner | Failure | Reply]:
        """Say of each battle which answer is better: "A" is the first, "B" the second."""
        ...


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question with one answer, each a sequence of texts and RGB images in reading order."""

    question: Sequence[Piece]
    answer: Sequence[Piece]


@runtime_checkable
class AnswerScorer(Protocol):
    """A judge that can also score a single answer; not every judge has this ability."""

    def score_answers(
        self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]
    ) -> Sequence[CriteriaScores | Mapping[str, int] | Failure | Reply]:
        """Score each answer by the seven criteria, with whole numbers from 0 to 10.

        A mapping has a number for each name of `CRITERIA`. A criterion that is left out, and a
        number out of range, are failures of that criterion.
        """
        ...


@runtime_checkable
class Movable(Protocol):
    """A model whose weights can wait in host memory while another model has the device.

    A model without this method is unloaded, and loaded again.
    """

    def move(self, device: str) -> None:
        """Put the weights there: "cpu", or the device that the model was bound to."""
        ...


Model = Describer | Generator | Encoder | Detector | Judge | Writer | Editor | Interleaver | Vqa

ROLE_METHODS: Mapping[RoleName, tuple[type, tuple[str, ...]]] = {
    "describer": (Describer, ("describe(images, prompt, seeds)",)),
    "generator": (Generator, ("generate(texts, seeds)",)),
    "encoder": (Encoder, ("encode_images(images)", "encode_texts(texts)")),
    "detector": (Detector, ("detect(images, queries)",)),
    "judge": (Judge, ("judge(battles, seeds)",)),
    "writer": (Writer, ("write(questions, prompt, seeds)",)),
    "editor": (Editor, ("edit(images, texts, seeds)",)),
    "interleaver": (Interleaver, ("interleave(questions, limits, seeds)",)),
    "vqa": (Vqa, ("answer(pieces, questions)",)),
}
"""The Protocol of each role, and its methods for people."""


class Servers(Protocol):
    """The servers of a run, as binding needs them; `models/serving/run_servers.py` has them."""

    def join(self, plan: Any) -> Any:
        """Note that a server will be needed. plan: a `ServerPlan`. Returns its `ServerFolder`."""
        ...

    def running(self, plan: Any) -> Any:
        """The `RunningServer` of a plan, started where it does not run."""
        ...


@dataclass(frozen=True)
class BindContext:
    """The parts of a run that binding needs.

    hash_file: SHA-256 (hex) of a file's bytes; the run remembers it by path, size and mtime.
    threads: CPU threads that a model of this process may use; None leaves the library's choice.
    force: whether a checkpoint is tried in a role that detection does not give it.
    servers: the servers that the run starts; None where a process starts its own, if any.
    devices: by the text of a spec, the device that `auto` means for it where the process has
        several; of other specs it is the first.
    """

    hash_file: Callable[[Path], str]
    threads: int | None = None
    force: bool = False
    servers: Servers | None = None
    devices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class IdleParts:
    """The trained parts of a model that change nothing.

    remarks: a sentence for each.
    whole: whether these are all of its trained parts, so that it is its base.
    """

    remarks: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True)
class BoundRole:
    """A model spec that was resolved for one role: its identity, and how to load it when needed.

    Everything but `load` is known without loading a model or importing torch.

    role: the role it plays here.
    spec: what the user typed.
    what: what it was taken for, for people ("LlavaForConditionalGeneration").
    fingerprint: digest of everything that decides the outputs besides `params`: weights,
        configuration, tokenizer, code version of a `python:` model.
    adapter: name and version of the adapter ("transformers-describer/1"); part of every step's key.
    params: inference parameters that can change the output; part of every step's key.
    seeded: whether the output depends on the seed; where it does not, the seed is left out of the
        key, and equal inputs share one result.
    batch_size: most inputs in one call.
    grows: whether a larger batch may be tried where memory allows: the user gave no size.
    small: whether it is a small model on the CPU, so that copies of it in other processes cost
        little.
    build: what else than `what`, but not the values of the weights, decides memory and speed.
    lasting: whether the model lives as long as the process, so that unloading it frees nothing.
    shares: names what is loaded where several roles of one spec are one model, loaded once for all
        of them: whichever of them loads it first; empty for a model of its own.
    provenance: kept beside results, never in a key (device, library versions).
    load: makes the model; called again only after it was unloaded. Raises IdentityError
        where a file that the fingerprint covers is another one by then.
    files: those that the fingerprint covers; None for a model that has none, or names none.
    probabilities: whether a judge gives each verdict with the probabilities of all four; None where
        only its verdicts can tell.
    warn: warnings for people that follow from the provenance of results, a sentence each; also
        of results that an earlier run stored. None where there is nothing to tell.
    scores_answers: whether it is a judge that is an `AnswerScorer` too.
    dispatched: whether a library placed its parts, perhaps on all devices of the process: it is
        loaded again where others are moved.
    remarks: what was found where the spec does not say so, a line each, for the header.
    idle: finds the trained parts that change nothing, in their files.
    named_in_baselines: how baselines name it in the place of its fingerprint, where numbers stay
        comparable when that changes: people, whose votes are on other battles every time.
    """

    role: RoleName
    spec: str
    what: str
    fingerprint: str
    adapter: str
    load: Callable[[], Model]
    params: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = False
    batch_size: int = 8
    grows: bool = False
    small: bool = False
    build: str = ""
    lasting: bool = False
    shares: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)
    files: CoveredFiles | None = field(default=None, repr=False, compare=False)
    probabilities: bool | None = None
    warn: Warn | None = field(default=None, repr=False, compare=False)
    scores_answers: bool = False
    dispatched: bool = False
    remarks: tuple[str, ...] = ()
    idle: Callable[[], IdleParts] = field(default=IdleParts, repr=False, compare=False)
    named_in_baselines: str = ""

    @property
    def short_fingerprint(self) -> str:
        """Its first digits, as baselines and stored results name it."""
        return self.fingerprint[:SHORT_FINGERPRINT]

    @property
    def hides_reasoning(self) -> bool:
        """Whether reasoning in its texts is no part of its answers.

        As of every model whose spec, or `params`, does not say reasoning=keep; people write answers
        alone.
        """
        return self.params.get("reasoning") != "keep" and not self.adapter.startswith("human/")

    @property
    def device(self) -> str:
        """Where the model works, as torch names it; "cpu" where it is unknown."""
        return self.provenance.get("device", "cpu")

    @property
    def identity(self) -> dict[str, Any]:
        """All that a result depends on, as built-in types: enters keys and baselines."""
        return {
            "adapter": self.adapter,
            "fingerprint": self.fingerprint,
            "params": dict(self.params),
        }
