"""Interleavers over the API: chat models whose message holds texts and images.

The API has no one field for images in an answer. Read are content parts (`image_url` and `image`
parts), images that stand in the text as data URLs, with or without Markdown around them, and the
field `images` beside the content, whose images go where the text has markers, and after it where it
has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import STEP_END, cut_into_steps
from pytest_cepbench.artifacts.reasoning import with_reasoning
from pytest_cepbench.models.api.client import ApiRequest
from pytest_cepbench.models.api.endpoint import InterleaverParams
from pytest_cepbench.models.api.messages import ChatModel, chat_settings
from pytest_cepbench.models.api.responses import (
    ApiResponse,
    decode_entry,
    is_reasoning,
    read_completion,
    reasoning_beside,
)
from pytest_cepbench.models.interleavers.prompts import INTERLEAVE, told_text
from pytest_cepbench.models.protocols import AnswerStep, Question, Reply, StepLimit

_INLINE = re.compile(
    r"!\[[^\]]{0,200}\]\(\s*(data:image/[^)\s]+)\s*\)|(data:image/[\w.+-]+;base64,[A-Za-z0-9+/]+=*)"
)
"""An image in a text: in Markdown, or its data URL alone."""

Pixels = npt.NDArray[np.uint8]


class ApiInterleaver(ChatModel[InterleaverParams]):
    """An interleaver behind a server."""

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> list[Reply]:
        """One reply for each question: its steps, or the failure that they amount to.

        All steps are returned: what a limit cuts off is for the caller to count. Raises ModelError
        where the server answers no request at all.
        """
        return self.client.send_all(
            [
                self._request(question, limit, seed)
                for question, limit, seed in zip(questions, limits, seeds, strict=True)
            ]
        )

    def _request(self, question: Question, limit: StepLimit, seed: int) -> ApiRequest:
        params = self.params
        told = [told_text(limit.told)] if limit.told is not None else []
        system = INTERLEAVE if params.system_prompt is None else params.system_prompt
        settings = dict(chat_settings(params, seed))
        if params.modalities is not None:
            settings["modalities"] = params.modalities.split(",")
        read = partial(read_answer, beside=params.reasoning == "strip")
        return self.request([*question, *told], system, settings, read)


def read_answer(document: Any, *, beside: bool = True) -> ApiResponse:
    """The steps of a chat completion, a list of `AnswerStep` with (height, width, 3) uint8 images.

    beside: whether the reasoning that the server gives beside them goes before the first text.

    A refusal, what a content filter stopped, an image that is none and an answer without a step are
    failures. Raises NoAnswerError as `read_completion`, PointerError where an image is only pointed
    to.
    """
    return read_completion(document, partial(_read_steps, beside=beside))


def _read_steps(message: Mapping[str, Any], *, beside: bool) -> list[AnswerStep] | Failure:
    reasoning = reasoning_beside(message) if beside else ""
    pieces: list[str | Pixels] = [with_reasoning(reasoning, "")] if reasoning else []
    for part in _list_parts(message):
        piece = part if isinstance(part, str) else decode_entry(part)
        if isinstance(piece, Failure):
            return piece
        pieces += [] if piece is None else [piece]
    steps = [AnswerStep(text, image) for text, image in cut_into_steps(pieces)]
    refusal = message.get("refusal")
    if not steps and isinstance(refusal, str) and refusal:
        return Failure("refused", refusal)
    return steps or Failure("empty-text", "the message holds no text and no image")


def _list_parts(message: Mapping[str, Any]) -> list[str | Mapping[str, Any]]:
    """Texts, and entries for `decode_entry`, in reading order."""
    content = message.get("content")
    parts: list[str | Mapping[str, Any]] = []
    for part in content if isinstance(content, list) else [content]:
        parts += _read_part(part)
    attached = message.get("images")
    if not isinstance(attached, list) or any(isinstance(part, dict) for part in parts):
        return parts  # what is in the content stands beside it only once more
    images = [piece for part in attached for piece in _read_part(part) if isinstance(piece, dict)]
    return _merge("".join(part for part in parts if isinstance(part, str)), images)


def _read_part(part: object) -> Iterator[str | Mapping[str, Any]]:
    if isinstance(part, str):
        yield from _split_inline(part)
    elif isinstance(part, dict) and not is_reasoning(part):
        text, entry = part.get("text"), part.get("image_url", part.get("image"))
        if isinstance(text, str):
            yield from _split_inline(text)
        elif isinstance(entry, str):
            yield {"url": entry}
        elif isinstance(entry, dict):
            yield entry
        elif "b64_json" in part:
            yield part


def _split_inline(text: str) -> Iterator[str | Mapping[str, Any]]:
    end = 0
    for match in _INLINE.finditer(text):
        yield text[end : match.start()]
        yield {"url": match[1] or match[2]}
        end = match.end()
    yield text[end:]


def _merge(text: str, images: Sequence[Mapping[str, Any]]) -> list[str | Mapping[str, Any]]:
    """The text with its images in the places of its markers; those without one go to the end."""
    texts = text.split(STEP_END) if images else [text]
    parts: list[str | Mapping[str, Any]] = []
    for index, part in enumerate(texts):
        parts.append(part)
        parts += images[index : index + 1] if index < len(texts) - 1 else images[index:]
    return parts
