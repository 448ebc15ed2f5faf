"""Answers, and faults in their place, read out of what a server sends.

Nothing in it can be taken for granted. A fault is asked again, shortened by a parameter, given up
for this input, or raised; `_KINDS` is the table.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, decode_image
from pytest_cepbench.artifacts.answer import STEP_END, cut_into_steps, with_reasoning
from pytest_cepbench.errors import ImageError, NoAnswerError, NoLogprobsError, PointerError
from pytest_cepbench.models.protocols import AnswerStep

_MOST_TOKENS = 10**9


@dataclass(frozen=True)
class ApiResponse:
    """The answer to one request.

    value: a text, an image's (height, width, 3) uint8, the steps of an answer, or a Failure.
    tokens: read and written.
    reported: the server's names for its model and system.
    cut: whether the text ends at the limit of its length.
    deviation: in what the answer differs from the request, for people; empty where in nothing.
    provenance: kept beside the stored result.
    """

    value: Any
    tokens: tuple[int, int] = (0, 0)
    reported: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    deviation: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)


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

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Of a message: DeepSeek's and SGLang's name, and that of OpenRouter and of vLLM since 0.11."""


def read_chat(document: Any) -> ApiResponse:
    """The text of a chat completion, with the reasoning that the server gives beside it.

    A refusal, and what a content filter stopped, are failures; an empty text is an empty text.
    Raises NoAnswerError as `read_completion`.
    """

    def read(message: Mapping[str, Any]) -> str | Failure:
        text = _text(message)
        reasoning = reasoning_beside(message)
        return with_reasoning(reasoning, text) if reasoning and isinstance(text, str) else text

    return read_completion(document, read)


def read_content(document: Any) -> ApiResponse:
    """As `read_chat`, without the reasoning beside the text."""
    return read_completion(document, _text)


def reasoning_beside(message: Mapping[str, Any]) -> str:
    """The reasoning in fields or parts of its own; empty where the server gives none."""
    texts = [message.get(name) for name in REASONING_FIELDS]
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        inner = part.get("thinking", part.get("text")) if is_reasoning(part) else None
        texts += [_get(piece, "text") for piece in inner] if isinstance(inner, list) else [inner]
    stripped = (text.strip() for text in texts if isinstance(text, str))
    return "\n".join(dict.fromkeys(filter(None, stripped)))


def read_completion(document: Any, read_message: Callable[[Mapping[str, Any]], Any]) -> ApiResponse:
    """A chat completion, its message read as the role needs it.

    What a content filter stopped is a failure. Raises NoAnswerError where there is no choice with a
    message in it, where the server says that it gave up, and where the message is empty and no
    token was written: the model has not answered, and may do so when it is asked again.
    """
    choice = _first(_get(document, "choices"))
    message = _get(choice, "message")
    if not isinstance(message, dict):
        raise NoAnswerError(_shape(document, "choices"))
    given = _get(choice, "finish_reason")
    reason = str(given).lower() if given else ""
    if reason and reason not in _WHOLE | _CUT | _FILTERED:
        said = _get(_get(choice, "error"), "message")
        msg = f"the server ended the answer with finish_reason {given!r:.60}"
        raise NoAnswerError(f"{msg}: {said}" if isinstance(said, str) else msg)
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
                raise NoAnswerError(
                    f"an empty message, of no token, with finish_reason {reason or None!r}"
                )
    tokens = (_count(document, "prompt_tokens"), written)
    return ApiResponse(value, tokens, _reported(document), cut=reason in _CUT)


def read_likelihoods(document: Any) -> list[tuple[str, Mapping[str, float]]]:
    """The tokens of a chat completion, each with the log-probabilities of itself and of others that
    could have stood in its place, by their texts.

    Raises NoLogprobsError where the server gives none.
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
        raise NoLogprobsError
    return tokens


def read_image(document: Any) -> ApiResponse:
    """The image in the answer to an image request.

    What is no image is a failure. Raises NoAnswerError where there is none, PointerError where the
    answer gives an address instead.
    """
    image_entry = _first(_get(document, "data"))
    if not isinstance(image_entry, dict):
        raise NoAnswerError(_shape(document, "data"))
    image = decode_entry(image_entry)
    if image is None:
        raise NoAnswerError(_shape(document, "data"))
    tokens = (_count(document, "input_tokens"), _count(document, "output_tokens"))
    return ApiResponse(image, tokens, _reported(document))


def read_models(document: Any) -> tuple[str, ...]:
    """The names in a list of models; none where it is no such list."""
    data = _get(document, "data")
    names = [_get(entry, "id") for entry in data] if isinstance(data, list) else []
    return tuple(name for name in names if isinstance(name, str))


def _text(message: Mapping[str, Any]) -> str | Failure:
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, list):  # parts, as some servers answer
        parts = [_get(part, "text") for part in content if not is_reasoning(part)]
        content = "".join(part for part in parts if isinstance(part, str))
    if isinstance(refusal, str) and refusal and not content:
        return Failure("refused", refusal)  # shortened when keys are taken out of it
    if content is not None and not isinstance(content, str):
        raise NoAnswerError(f"the message's content is a {type(content).__name__}")
    return (content or "").strip()


def is_reasoning(part: object) -> bool:
    """Whether a part of a message holds reasoning, as Mistral's API and others say by its type."""
    return _get(part, "type") in ("thinking", "reasoning", "redacted_thinking")


def decode_entry(image_entry: Mapping[str, Any]) -> npt.NDArray[np.uint8] | Failure | None:
    """The pixels of an entry with an image, (height, width, 3); None where there is no image in it.

    What cannot be decoded is a failure. Raises PointerError where the entry gives an address
    instead.
    """
    encoded, url = image_entry.get("b64_json"), image_entry.get("url")
    if not encoded and isinstance(url, str):
        kind, comma, encoded = url.partition(",")
        if not (kind.startswith("data:") and kind.endswith(";base64") and comma):
            raise PointerError
    if not isinstance(encoded, str):
        return None
    try:
        return decode_image(base64.b64decode(encoded, validate=True)).pixels
    except (binascii.Error, ValueError) as error:
        return Failure("bad-image", f"no base64: {error}")
    except ImageError as error:
        return Failure("bad-image", str(error))


def _reported(document: Any) -> dict[str, str]:
    """The server's names for its model and system, under names for provenance."""
    names = {"served": _get(document, "model"), "system": _get(document, "system_fingerprint")}
    return {name: value for name, value in names.items() if isinstance(value, str) and value}


def _count(document: Any, name: str) -> int:
    value = _get(_get(document, "usage"), name)
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else 0


def _get(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _shape(document: Any, wanted: str) -> str:
    if not isinstance(document, dict):
        return f"JSON without {wanted!r}"
    if wanted not in document:
        names = ", ".join(sorted(map(str, document))[:6])
        return f"JSON without {wanted!r}, with {names or 'nothing'}"
    return f"nothing usable in {wanted!r}"


_INLINE = re.compile(
    r"!\[[^\]]{0,200}\]\(\s*(data:image/[^)\s]+)\s*\)|(data:image/[\w.+-]+;base64,[A-Za-z0-9+/]+=*)"
)
"""An image in a text: in Markdown, or its data URL alone."""


def read_steps(document: Any, *, beside: bool = True) -> ApiResponse:
    """The steps of a chat completion, a list of `AnswerStep` with (height, width, 3) uint8 images.

    beside: whether the reasoning that the server gives beside them goes before the first text.

    A refusal, what a content filter stopped, an image that is none and an answer without a step are
    failures. Raises NoAnswerError as `read_completion`, PointerError where an image is only pointed
    to.
    """

    def read(message: Mapping[str, Any]) -> list[AnswerStep] | Failure:
        reasoning = reasoning_beside(message) if beside else ""
        pieces: list[Any] = [with_reasoning(reasoning, "")] if reasoning else []
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

    return read_completion(document, read)


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
    text = "".join(part for part in parts if isinstance(part, str))
    # Images take the places of the text's markers; those without one go to the end.
    texts = text.split(STEP_END) if images else [text]
    placed: list[str | Mapping[str, Any]] = []
    for before in texts[:-1]:
        placed += [before, *images[:1]]
        images = images[1:]
    return [*placed, texts[-1], *images]


def _read_part(part: object) -> Iterator[str | Mapping[str, Any]]:
    if isinstance(part, dict) and not is_reasoning(part):
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


# -- faults ---------------------------------------------------------------------------------------

FaultKind = Literal["again", "throttled", "content", "parameter", "rejected", "fatal"]
"""again: another try may succeed.
throttled: the same, and all requests are to slow down.
content: the provider's policy forbids this input.
parameter: the server does not accept one of the parameters.
rejected: this request is wrong to the server.
fatal: every request would end like this one."""

_POLICY = ("content_policy", "content_filter", "moderation", "invalid_prompt", "safety")
_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")

_KINDS: Sequence[tuple[Container[int], Sequence[str], FaultKind]] = (
    (range(400), (), "fatal"),
    ((429,), _QUOTA, "fatal"),
    ((429,), (), "throttled"),
    ((408, 409, 425, 500, *range(502, 1000)), (), "again"),
    ((400, 403, 422, 451), _POLICY, "content"),
    ((401, 402, 403, 404, 405, 413), (), "fatal"),
)
"""Statuses, parts of the server's code (none: any code), and the kind; the first row that fits
counts. What fits none is rejected, unless its words name a parameter or the size of the request."""

_LONGEST = 100_000
"""Bytes of a body that are read for people. Far less is shown; but a body that is cut before keys
are redacted could keep a part of one."""

_WEB_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_REFUSAL = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|additional propert|"
    r"not available|only the default|extra_forbidden",
    re.IGNORECASE,
)

_TOO_LARGE = re.compile(
    r"(?:request|payload|body|entity|image|file|upload)\b[^.\n]{0,60}"
    r"\b(?:too (?:large|big)|exceeds)\b"
    r"|request_too_large|payload_too_large",
    re.IGNORECASE,
)
"""A refusal of the bytes of a request. One of its tokens speaks of the context."""

_FORM = "response_format"
_FORM_REFUSAL = re.compile(r"\b(?:response_format|json_schema|guided_json|structured output)")


@dataclass(frozen=True)
class ApiFault:
    """The reason why a request has no answer.

    kind: what follows from it.
    words: the server's or the network's own.
    status: of HTTP; None where there was no response at all.
    wait: seconds that the server asks to wait.
    parameter: the one that the server does not accept.
    code: the server's own name of the fault, lower case.
    redirect: the address that a redirect points to, as the server wrote it.
    """

    kind: FaultKind
    words: str
    status: int | None = None
    wait: float | None = None
    parameter: str | None = None
    code: str = ""
    redirect: str = ""


def classify_response(
    status: int, headers: Mapping[str, str], body: bytes, sent: Collection[str]
) -> ApiFault:
    """The fault of a response whose status is not 200.

    sent: optional parameters of the request.
    """
    words, code, named = _error_fields(read_json(body), body)
    kind: FaultKind = next(
        (
            kind
            for statuses, parts, kind in _KINDS
            if status in statuses and (not parts or any(part in code for part in parts))
        ),
        "rejected",
    )
    if kind in ("again", "throttled"):
        wait = requested_wait(headers)
        return ApiFault(kind if wait is None else "throttled", words, status, wait, code=code)
    parameter = None
    if status in (400, 422) and kind == "rejected":
        parameter = _refused_parameter(words, code, named, sent)
        if parameter is not None:
            kind = "parameter"
        elif _TOO_LARGE.search(f"{words} {code}"):
            kind = "fatal"
    redirect = headers.get("location", "") if 300 <= status < 400 else ""
    return ApiFault(kind, words, status, parameter=parameter, code=code, redirect=redirect)


def fault_in_document(document: Any) -> ApiFault | None:
    """The fault that some proxies send with status 200; None where there is none."""
    if not isinstance(document, dict) or not document.get("error"):
        return None
    words, code, _ = _error_fields(document, b"")
    policy = any(part in code for part in _POLICY)
    return ApiFault("content" if policy else "again", words, 200, code=code)


def read_json(body: bytes) -> Any:
    """The document in a body, None for anything that is not JSON."""
    try:
        return msgspec.json.decode(body)
    # A server may send anything: no JSON, a wrong encoding, ten thousand brackets.
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def describe_body(body: bytes) -> str:
    """A body that is no JSON, in words for people."""
    text = body[:_LONGEST].decode("utf-8", "replace")
    if _WEB_PAGE.match(text):
        title = _TITLE.search(text)
        return f"a web page ({title[1].strip()})" if title else "a web page"
    return text.strip() or "an empty answer"


def is_web_page(body: bytes) -> bool:
    """True for a body of HTML."""
    return bool(_WEB_PAGE.match(body[:200].decode("utf-8", "replace")))


def requested_wait(
    headers: Mapping[str, str], now: Callable[[], float] = time.time
) -> float | None:
    """Seconds that a server asks to wait: retry-after-ms, or Retry-After (seconds or a date)."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - now())
    except (TypeError, ValueError, OverflowError):
        return None


def _error_fields(document: Any, body: bytes) -> tuple[str, str, str]:
    """Words, code and named parameter of an error, in the fields of several servers."""
    outer = document if isinstance(document, dict) else {}
    inner = outer.get("error", outer.get("detail", outer))
    if isinstance(inner, list):  # of FastAPI: one entry for each wrong field
        entries, names = [], []
        for entry in inner:
            if not isinstance(entry, dict):
                entries.append(str(entry))
                continue
            loc = entry.get("loc")
            place = list(map(str, loc)) if isinstance(loc, list) else []
            names += place[-1:]
            entries.append(f"{'.'.join(place)}: {entry.get('msg', entry.get('type', ''))}")
        return "; ".join(entries[:4]), "", names[0] if names else ""
    if isinstance(inner, dict):
        fields = [inner.get(name) for name in ("code", "type", "param")]
        code, kind, param = (field if isinstance(field, str) else "" for field in fields)
        message = inner.get("message", inner.get("detail"))
        words = message if isinstance(message, str) else describe_body(body)
        return words, (code or kind).lower(), param
    return (inner if isinstance(inner, str) and inner else describe_body(body)), "", ""


def _refused_parameter(words: str, code: str, named: str, sent: Collection[str]) -> str | None:
    """The parameter that a refusal is about, if it says that the server does not accept it.

    Whatever is said against the form of answers, it is the server that does not have this form:
    the user cannot write another.
    """
    if _FORM in sent and (named.startswith(_FORM) or _FORM_REFUSAL.search(words)):
        return _FORM
    if not (_REFUSAL.search(words) or _REFUSAL.search(code.replace("_", " "))):
        return None
    if named in sent:
        return named
    mentioned = [(match.start(), n) for n in sent if (match := re.search(rf"\b{n}\b", words))]
    return min(mentioned)[1] if mentioned else None
