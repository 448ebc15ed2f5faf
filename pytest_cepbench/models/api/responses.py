"""Answers, read out of what a server sends.

Nothing in it can be taken for granted: what is no answer is an `ApiError`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, decode_image
from pytest_cepbench.artifacts.answer import STEP_END, cut_into_steps, with_reasoning
from pytest_cepbench.errors import ApiError, ImageError
from pytest_cepbench.models.protocols import CUT, AnswerStep, Reply, Usage

_MOST_TOKENS = 10**9

SERVED, SYSTEM = "server served", "server system"
"""Fields of provenance: the names under which a server answered, of its model and of itself."""

_WHOLE = {
    "stop", "end_turn", "stop_sequence", "eos", "eos_token", "tool_calls", "tool_use",
    "function_call",
}  # fmt: skip
_CUT = {"length", "max_tokens", "max_output_tokens", "model_length"}
_FILTERED = {
    "content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "refusal",
    "sensitive",
}  # fmt: skip
"""Finish reasons of OpenAI's API and their twins (Anthropic, Gemini, TGI, Mistral, GLM), lower
case. Any other (abort, error, load, insufficient_system_resource) says that the server gave up."""

_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Of a message: DeepSeek's and SGLang's name, and that of OpenRouter and of vLLM since 0.11."""


def read_chat(document: Any, *, beside: bool = True) -> Reply:
    """The text of a chat completion.

    beside: with the reasoning that the server gives beside it.

    A refusal, and what a content filter stopped, are failures; an empty text is an empty text.
    Raises ApiError as `read_completion`.
    """

    def read(message: Mapping[str, Any]) -> str | Failure:
        content, refusal = message.get("content"), message.get("refusal")
        if isinstance(content, list):  # parts, as some servers answer
            parts = [_get(part, "text") for part in content if not _is_reasoning(part)]
            content = "".join(part for part in parts if isinstance(part, str))
        if isinstance(refusal, str) and refusal and not content:
            return Failure("refused", refusal)  # shortened when keys are taken out of it
        if content is not None and not isinstance(content, str):
            raise ApiError("again", f"the message's content is a {type(content).__name__}")
        text = (content or "").strip()
        reasoning = _reasoning_beside(message) if beside else ""
        return with_reasoning(reasoning, text) if reasoning else text

    return read_completion(document, read)


def _reasoning_beside(message: Mapping[str, Any]) -> str:
    """The reasoning in fields or parts of its own; empty where the server gives none."""
    texts = [message.get(name) for name in _REASONING_FIELDS]
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        inner = part.get("thinking", part.get("text")) if _is_reasoning(part) else None
        texts += [_get(piece, "text") for piece in inner] if isinstance(inner, list) else [inner]
    stripped = (text.strip() for text in texts if isinstance(text, str))
    return "\n".join(dict.fromkeys(filter(None, stripped)))


def read_completion(document: Any, read_message: Callable[[Mapping[str, Any]], Any]) -> Reply:
    """A chat completion, its message read as the role needs it, with the tokens and the server's
    names beside it.

    What a content filter stopped is a failure. Raises ApiError where there is no choice with a
    message in it, where the server says that it gave up, and where the message is empty and no
    token was written: the model has not answered, and may do so when it is asked again.
    """
    choice = _first(_get(document, "choices"))
    message = _get(choice, "message")
    if not isinstance(message, dict):
        raise _unusable(document, "choices")
    given = _get(choice, "finish_reason")
    reason = str(given).lower() if given else ""
    if reason and reason not in _WHOLE | _CUT | _FILTERED:
        said = _get(_get(choice, "error"), "message")
        words = f"the server ended the answer with finish_reason {given!r:.60}"
        raise ApiError("again", f"{words}: {said}" if isinstance(said, str) else words)
    written = _count(document, "completion_tokens")
    if reason in _FILTERED:
        value: Any = Failure("refused", "stopped by the provider's content filter")
    else:
        value = read_message(message)
        if not value or (isinstance(value, Failure) and value.kind == "empty-text"):
            # One that states that it stopped by itself, with an empty text, from a server that
            # counts no tokens at all, is a model's answer.
            counted = _get(_get(document, "usage"), "completion_tokens") is not None
            stated = reason in _WHOLE and message.get("content") is not None
            if not (written or (stated and not counted)):
                words = f"an empty message, of no token, with finish_reason {reason or None!r}"
                raise ApiError("again", words)
    usage = Usage(input_tokens=_count(document, "prompt_tokens"), output_tokens=written)
    return Reply(value, usage, {**_names(document), **(CUT if reason in _CUT else {})})


def read_likelihoods(document: Any) -> list[tuple[str, Mapping[str, float]]]:
    """The tokens of a chat completion, each with the log-probabilities of itself and of others that
    could have stood in its place, by their texts.

    Raises ApiError where the server gives none.
    """
    content = _get(_get(_first(_get(document, "choices")), "logprobs"), "content")
    tokens: list[tuple[str, Mapping[str, float]]] = []
    for entry in content if isinstance(content, list) else []:
        token, others = _get(entry, "token"), _get(entry, "top_logprobs")
        if isinstance(token, str) and isinstance(others, list):
            logarithms = {}
            for other in (entry, *others):
                text, value = _get(other, "token"), _get(other, "logprob")
                if isinstance(text, str) and isinstance(value, int | float) and value <= 1e-3:
                    logarithms[text] = min(float(value), 0.0)
            tokens.append((token, logarithms))
    if not tokens:
        raise ApiError("fatal", "its answers have none", cause="logprobs")
    return tokens


def read_image(document: Any) -> Reply:
    """The image in the answer to an image request.

    What is no image is a failure. Raises ApiError where there is none, and where the answer gives
    an address instead.
    """
    entry = _first(_get(document, "data"))
    image = _decode_entry(entry) if isinstance(entry, dict) else None
    if image is None:
        raise _unusable(document, "data")
    counts = {name: _count(document, name) for name in ("input_tokens", "output_tokens")}
    return Reply(image, Usage(**counts), _names(document))


def read_models(document: Any) -> tuple[str, ...]:
    """The names in a list of models; none where it is no such list."""
    data = _get(document, "data")
    names = [_get(entry, "id") for entry in data] if isinstance(data, list) else []
    return tuple(name for name in names if isinstance(name, str))


def _is_reasoning(part: object) -> bool:
    """Whether a part of a message holds reasoning, as Mistral's API and others say by its type."""
    return _get(part, "type") in ("thinking", "reasoning", "redacted_thinking")


def _decode_entry(entry: Mapping[str, Any]) -> npt.NDArray[np.uint8] | Failure | None:
    """The pixels of an entry with an image, (height, width, 3); None where there is no image in it.

    What cannot be decoded is a failure. Raises ApiError where the entry gives an address
    instead.
    """
    encoded, url = entry.get("b64_json"), entry.get("url")
    if not encoded and isinstance(url, str):
        kind, comma, encoded = url.partition(",")
        if not (kind.startswith("data:") and kind.endswith(";base64") and comma):
            raise ApiError("fatal", cause="pointer")
    if not isinstance(encoded, str):
        return None
    try:
        return decode_image(base64.b64decode(encoded, validate=True)).pixels
    except (binascii.Error, ValueError, ImageError) as error:
        return Failure("bad-image", str(error))


def _names(document: Any) -> dict[str, str]:
    """The server's names for its model and system, as provenance."""
    names = {SERVED: _get(document, "model"), SYSTEM: _get(document, "system_fingerprint")}
    return {name: value for name, value in names.items() if isinstance(value, str) and value}


def _count(document: Any, name: str) -> int:
    value = _get(_get(document, "usage"), name)
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else 0


def _get(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _unusable(document: Any, wanted: str) -> ApiError:
    there = ", ".join(sorted(map(str, document))[:6]) if isinstance(document, dict) else ""
    return ApiError("again", f"JSON without a usable {wanted!r}, with {there or 'nothing'}")


_INLINE = re.compile(
    r"!\[[^\]]{0,200}\]\(\s*(data:image/[^)\s]+)\s*\)|(data:image/[\w.+-]+;base64,[A-Za-z0-9+/]+=*)"
)
"""An image in a text: in Markdown, or its data URL alone."""


def read_steps(document: Any, *, beside: bool = True) -> Reply:
    """The steps of a chat completion, a list of `AnswerStep` with (height, width, 3) uint8 images.

    beside: whether the reasoning that the server gives beside them goes before the first text.

    A refusal, what a content filter stopped, an image that is none and an answer without a step are
    failures. Raises ApiError as `read_completion`, and where an image is only pointed to.
    """

    def read(message: Mapping[str, Any]) -> list[AnswerStep] | Failure:
        reasoning = _reasoning_beside(message) if beside else ""
        pieces: list[Any] = [with_reasoning(reasoning, "")] if reasoning else []
        for part in _list_parts(message):
            piece = part if isinstance(part, str) else _decode_entry(part)
            if isinstance(piece, Failure):
                return piece
            pieces += [] if piece is None else [piece]
        steps = [AnswerStep(text, image) for text, image in cut_into_steps(pieces)]
        refusal = message.get("refusal")
        if not steps and isinstance(refusal, str) and refusal:
            return Failure("refused", refusal)
        return steps or Failure("empty-text", "the message holds no text and no image")

    return read_completion(document, read)


def _list_parts(message: Mapping[str, Any]) -> list[str | Mapping[str, Any]]:
    """Texts, and entries for `_decode_entry`, in reading order."""
    content, attached = message.get("content"), message.get("images")
    parts: list[str | Mapping[str, Any]] = []
    for part in content if isinstance(content, list) else [content]:
        parts += _read_part(part)
    if not isinstance(attached, list) or any(isinstance(part, dict) for part in parts):
        return parts  # what is in the content stands beside it only once more
    images = [piece for part in attached for piece in _read_part(part) if isinstance(piece, dict)]
    text = "".join(part for part in parts if isinstance(part, str))
    # Images take the places of the text's markers; those without one go to the end.
    texts = text.split(STEP_END) if images else [text]
    placed: list[str | Mapping[str, Any]] = []
    for before in texts[:-1]:
        placed += [before, *images[:1]]
        images = images[1:]
    return [*placed, texts[-1], *images]


def _read_part(part: object) -> Iterator[str | Mapping[str, Any]]:
    if isinstance(part, dict) and not _is_reasoning(part):
        text, entry = part.get("text"), part.get("image_url", part.get("image"))
        if isinstance(text, str):
            yield from _read_part(text)
        elif isinstance(entry, str):
            yield {"url": entry}
        elif isinstance(entry, dict):
            yield entry
        elif "b64_json" in part:
            yield part
    elif isinstance(part, str):
        end = 0
        for match in _INLINE.finditer(part):
            yield part[end : match.start()]
            yield {"url": match[1] or match[2]}
            end = match.end()
        yield part[end:]
