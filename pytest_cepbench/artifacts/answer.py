"""Answers of models: interleaved steps, and answers told apart from reasoning.

The rules by which a sequence of texts and images becomes steps stand here once, for models that
answer in one message and for answers that are read from files.

What a model thinks on the way is no part of what it answers: right thoughts would hide a useless
answer, and wrong ones spoil a right answer. Stores keep texts as models gave them; what counts is
read out of them here, JSON objects among it: the whole reply, else those that stand in its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec

from pytest_cepbench.artifacts.outcome import Failure
from pytest_cepbench.files import canonical_json, digest_text, parse_json

MOST_STEPS = 10
"""Most steps of an answer; the released test set of OpenING was filtered to as many."""

STEP_END = "<IMG>"
"""Ends a part of a writer's text, where an image belongs. Source: OpenING's released prompts."""

T = TypeVar("T")

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class StoredStep:
    """One step of an answer.

    text: empty where it has none.
    image: digest of its image; None where it has none.
    """

    text: str
    image: str | None


@dataclass(frozen=True)
class Answer:
    """An interleaved answer, whose images lie in the store.

    steps: in order, at least one. Raises ValueError for none, and for one without text and image.
    """

    steps: tuple[StoredStep, ...]

    def __post_init__(self) -> None:
        if not self.steps or any(not (step.text or step.image) for step in self.steps):
            raise ValueError("an answer has at least one step, and a step a text, an image or both")

    @cached_property
    def digest(self) -> str:
        """Digest of its texts and images, in order: equal answers have equal digests."""
        return digest_text(self.to_json())

    @property
    def images(self) -> tuple[str, ...]:
        """Digests of its images, in order."""
        return tuple(step.image for step in self.steps if step.image is not None)

    def to_json(self) -> str:
        """Canonical JSON: a list of [text, digest of the image or null]."""
        return canonical_json([[step.text, step.image] for step in self.steps])

    @classmethod
    def from_json(cls, text: str) -> Answer:
        """The answer that `to_json` wrote. Raises ValueError for anything else."""
        try:
            steps = msgspec.convert(parse_json(text), list[tuple[str, str | None]])
        except msgspec.ValidationError as error:
            raise ValueError(f"an answer is a list of [text, digest or null]: {error}") from error
        for _, image in steps:
            if image is not None and not _DIGEST.fullmatch(image):  # it becomes the name of a file
                raise ValueError(f"no digest of an image: {image[:80]!r}")
        return cls(tuple(StoredStep(*step) for step in steps))


def cut_into_steps(pieces: Iterable[str | T]) -> list[tuple[str, T | None]]:
    """Steps of (text, image or None) from texts and images in reading order.

    A step ends after its image: text after the last image is a step without one, and of two images
    in a row the second is a step without text. White space alone is no text; texts that follow one
    another are one text.
    """
    steps: list[tuple[str, T | None]] = []
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts += [piece.strip()] if piece.strip() else []
        else:
            steps.append(("\n".join(texts), piece))
            texts = []
    if texts:
        steps.append(("\n".join(texts), None))
    return steps


# -- reasoning -------------------------------------------------------------------------------------


class Markers(NamedTuple):
    """What stands around reasoning, each a character and a regular expression, and whose it is."""

    opening: tuple[str, str]
    closing: tuple[str, str]
    families: str


def _tag(name: str, families: str) -> Markers:
    return Markers(("<", rf"{name}(?:\s[^<>]{{0,80}})?>"), ("<", rf"/{name}\s{{0,8}}>"), families)


REASONING_MARKERS: tuple[Markers, ...] = (
    _tag("think", "DeepSeek-R1, Qwen3(-VL), QwQ, GLM-4.xV, InternVL3.5, MiMo-VL, MiniCPM-V 4.5"),
    _tag("thinking", "asked for by prompts"),
    _tag("thoughts?", "Gemini over the API of OpenAI"),
    _tag("reasoning", "LLaVA-CoT, checkpoints of GRPO recipes"),
    _tag("analysis", "Keye-VL"),
    _tag("seed:think", "Seed-OSS"),
    Markers(("[", r"(?-i:THINK)\]"), ("[", r"/(?-i:THINK)\]"), "Magistral, Ministral 3"),
    Markers(("\u25c1", "think\u25b7"), ("\u25c1", "/think\u25b7"), "Kimi-VL-Thinking"),
    Markers(("<", r"\|begin_of_thought\|>"), ("<", r"\|end_of_thought\|>"), "Sky-T1, OpenThinker"),
    Markers(("<", r"\|START_THINKING\|>"), ("<", r"\|END_THINKING\|>"), "Command A Reasoning"),
    Markers(("<", r"\|channel>thought\b"), ("<", r"channel\|>"), "Gemma 4"),
    Markers(
        ("<", r"\|channel\|>(?:analysis|commentary)\b"),
        ("<", r"\|channel\|>final\b[^<\n]{0,40}(?:<\|constrain\|>[^<\n]{0,40})?<\|message\|>"),
        "gpt-oss",
    ),
)
"""Written by models whose server, or chat template, leaves reasoning in the text."""

_FIRST = "".join(sorted({markers.opening[0] for markers in REASONING_MARKERS}))

# One class of first characters, which the regular expression looks for fast.
_MARKER = re.compile(
    rf"[{re.escape(_FIRST)}](?=[\w/|])(?:"
    + "|".join(
        rf"(?P<{kind}{number}>(?<={re.escape(first)}){rest})"
        for number, markers in enumerate(REASONING_MARKERS)
        for kind, (first, rest) in (("o", markers.opening), ("c", markers.closing))
    )
    + ")",
    re.IGNORECASE,
)

_PARTS = ("<|channel|>", "<|constrain|>", "<|message|>", "<|channel>")
"""Tokens that markers of gpt-oss and Gemma 4 are made of, with words between them."""

_BARE = re.compile(r"\Aanalysis(?=[A-Z]).*?(?:assistantfinal|\Z)", re.DOTALL)
"""Reasoning of gpt-oss where special tokens are taken off: only their words are left."""

_INDENT = 8  # spaces before a marker that still begins its line


def reasoning_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each stretch of reasoning in a text, its markers included, in order.

    Reasoning may begin in the prompt: a closing marker that nothing opens ends what stands before
    it. It may end at the limit of the text's length: an opening marker at the beginning of a line
    that nothing closes begins what stands behind it; within a line it is a word like others.
    """
    bare = _BARE.match(text)
    spans: list[tuple[int, int]] = [] if bare is None else [bare.span()]
    found = [
        (match, *_kind(match)) for match in _MARKER.finditer(text, spans[0][1] if spans else 0)
    ]
    closings = {number: match.start() for match, opens, number in found if not opens}
    begin: int | None = None
    inside = -1
    for match, opens, number in found:
        if begin is None and not opens:
            spans = [(0, match.end())]
        elif begin is None:
            at = match.start()
            before = text[max(0, at - _INDENT) : at].rstrip(" \t")
            begins_line = before.endswith("\n") or (not before and at <= _INDENT)
            if closings.get(number, -1) > at or begins_line:
                begin, inside = at, number
        elif not opens and number == inside:
            spans.append((begin, match.end()))
            begin = None
    if begin is not None:
        spans.append((begin, len(text)))
    return spans


def _kind(match: re.Match[str]) -> tuple[bool, int]:
    """Whether a marker opens, and its number in the table."""
    name = match.lastgroup or ""
    return name[0] == "o", int(name[1:])


def without_reasoning(text: str) -> str:
    """The answer in a text; a text that holds no reasoning as it is, an empty one for no answer."""
    spans = reasoning_spans(text)
    return _outside(text, spans, 0, len(text)).strip() if spans else text


def _outside(text: str, spans: Sequence[tuple[int, int]], low: int, high: int) -> str:
    """The part of a text from low to high that lies in none of the spans."""
    kept, at = [], low
    for start, end in spans:
        kept.append(text[at : max(at, min(start, high))])
        at = min(max(at, end), high)
    return " ".join(filter(None, (*kept, text[at:high])))  # nothing grows together


def read_answer(text: str) -> str | Failure:
    """The answer in a text; a failure where it holds nothing but reasoning."""
    answer = without_reasoning(text)
    return answer if answer or not text else only_reasoning(text)


def after_reasoning(text: str) -> str | None:
    """The answer in a reply; None where it holds none, or may end inside its reasoning.

    For verdicts and JSON, which a reply may name in its reasoning too: there an opening marker that
    nothing closes counts within a line as well.
    """
    answer = without_reasoning(text)
    return None if _MARKER.search(answer) or (text and not answer) else answer


def only_reasoning(text: str) -> Failure:
    """The failure of a text that holds nothing but reasoning."""
    return Failure("only-reasoning", f"no answer beside the reasoning {text!r:.200}")


def with_reasoning(reasoning: str, answer: str) -> str:
    """One text of both, where a server gives them apart; `without_reasoning` gives the answer.

    A closing marker inside the reasoning is spelt so that it closes nothing.
    """
    inside = re.sub("</(?=think)", r"<\\/", reasoning, flags=re.IGNORECASE)
    return f"<think>\n{inside}\n</think>\n\n{answer}"


def opened_by(prompt: str) -> str:
    """The opening marker that a prompt ends with, so that what follows is reasoning, or nothing."""
    last = list(_MARKER.finditer(prompt))[-1:]
    ends = [match for match in last if _kind(match)[0] and not prompt[match.end() :].strip()]
    return prompt[ends[0].start() :] if ends else ""


def marks_reasoning(token: str) -> bool:
    """Whether a token of a vocabulary is a marker, or a part of one."""
    return _MARKER.fullmatch(token) is not None or token in _PARTS


def steps_without_reasoning(
    steps: Sequence[tuple[str, T | None]],
) -> list[tuple[str, T | None] | None]:
    """The steps of an answer, each a text and an image, without the reasoning in them.

    Reasoning may reach over several steps, and the images in it are a part of it. None stands for a
    step of which nothing is left.
    """
    whole = "".join(f"{text}\n" for text, _ in steps)  # the end of a line stands for the image
    spans = reasoning_spans(whole)
    if not spans:
        return list(steps)
    answer: list[tuple[str, T | None] | None] = []
    low = 0
    for text, image in steps:
        high = low + len(text)
        kept = _outside(whole, spans, low, high).strip()
        drawn = None if any(start <= high < end for start, end in spans) else image
        answer.append((kept, drawn) if kept or drawn is not None else None)
        low = high + 1
    return answer


class Repeated:
    """Stands for the value of a key that an object has twice."""

    def __repr__(self) -> str:
        return "a key that is given twice"


def parse_reply(text: str) -> Any:
    """The JSON document of a text, with `Repeated` for keys that an object has twice.

    Raises ValueError, RecursionError where it is none.
    """
    return json.loads(text, object_pairs_hook=_pairs)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        document[key] = Repeated() if key in document else value
    return document


_TOKEN = re.compile(r'[{}]|"(?:[^"\\]|\\[\s\S])*+(?:"|\Z)')
"""A brace, or a string of JSON, in which braces do not count."""


def read_objects(reply: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a reply that are not part of another: the whole reply, where it is one.

    Each is a `{...}` with as many closing as opening braces outside of strings, found in one pass.
    """
    start = reply.find("{")
    while start >= 0:
        depth, end = 0, len(reply)
        for token in _TOKEN.finditer(reply, start):
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            if depth == 0:
                end = token.end()
                with suppress(ValueError, RecursionError):
                    yield parse_reply(reply[start:end])
                break
        start = reply.find("{", end)
