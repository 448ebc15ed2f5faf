"""What a server sends: answers read out of it, and faults in the place of answers.

Nothing in it can be taken for granted: what is no answer is an `ApiError`. A fault is asked again,
shortened by a parameter, given up for this input, or raised as a ModelError of one line that names
the option; `_KINDS` is the table.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Collection, Container, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from pytest_cepbench.artifacts import Failure, decode_image
from pytest_cepbench.artifacts.answer import with_reasoning
from pytest_cepbench.errors import ApiError, FaultKind, ImageError, ModelError, did_you_mean
from pytest_cepbench.models.api.endpoint import URL_VARIABLE, Endpoint
from pytest_cepbench.models.protocols import CUT, Reply, Usage

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

_REASONING_PARTS = ("thinking", "reasoning", "redacted_thinking")
"""Types of parts of a message that hold reasoning, of Mistral's API and others."""


def read_chat(document: Any, *, beside: bool = True) -> Reply:
    """The text of a chat completion, with its tokens and the server's names beside it.

    beside: with the reasoning that the server gives beside it.

    A refusal, and what a content filter stopped, are failures; an empty text is an empty text.
    Raises ApiError where there is no choice with a message in it, where the server says that it
    gave up, and where the message is empty and no token was written: the model has not answered,
    and may do so when it is asked again.
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
    value: str | Failure = Failure("refused", "stopped by the provider's content filter")
    if reason not in _FILTERED:
        value = _read_message(message, beside=beside)
        if not value:
            # One that states that it stopped by itself, with an empty text, from a server that
            # counts no tokens at all, is a model's answer.
            counted = _get(_get(document, "usage"), "completion_tokens") is not None
            stated = reason in _WHOLE and message.get("content") is not None
            if not (written or (stated and not counted)):
                words = f"an empty message, of no token, with finish_reason {reason or None!r}"
                raise ApiError("again", words)
    usage = Usage(input_tokens=_count(document, "prompt_tokens"), output_tokens=written)
    return Reply(value, usage, {**_names(document), **(CUT if reason in _CUT else {})})


def _read_message(message: Mapping[str, Any], *, beside: bool) -> str | Failure:
    content, refusal = message.get("content"), message.get("refusal")
    thoughts = [message.get(name) for name in _REASONING_FIELDS]
    if isinstance(content, list):  # parts, as some servers answer
        texts = []
        for part in content:
            if _get(part, "type") in _REASONING_PARTS:
                inner = part.get("thinking", part.get("text"))
                many = isinstance(inner, list)
                thoughts += [_get(piece, "text") for piece in inner] if many else [inner]
            elif isinstance(text := _get(part, "text"), str):
                texts.append(text)
        content = "".join(texts)
    if isinstance(refusal, str) and refusal and not content:
        return Failure("refused", refusal)  # shortened when keys are taken out of it
    if content is not None and not isinstance(content, str):
        raise ApiError("again", f"the message's content is a {type(content).__name__}")
    text = (content or "").strip()
    stripped = (thought.strip() for thought in thoughts if isinstance(thought, str))
    reasoning = "\n".join(dict.fromkeys(filter(None, stripped))) if beside else ""
    return with_reasoning(reasoning, text) if reasoning else text


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
    """The image in the answer to an image request, (height, width, 3) uint8.

    What cannot be decoded is a failure. Raises ApiError where there is none, and where the answer
    gives an address instead.
    """
    entry = _first(_get(document, "data"))
    encoded, url = _get(entry, "b64_json"), _get(entry, "url")
    if not encoded and isinstance(url, str):
        kind, comma, encoded = url.partition(",")
        if not (kind.startswith("data:") and kind.endswith(";base64") and comma):
            raise ApiError("fatal", cause="pointer")
    if not isinstance(encoded, str):
        raise _unusable(document, "data")
    image: Any
    try:
        image = decode_image(base64.b64decode(encoded, validate=True)).pixels
    except (binascii.Error, ValueError, ImageError) as error:
        image = Failure("bad-image", str(error))
    counts = {name: _count(document, name) for name in ("input_tokens", "output_tokens")}
    return Reply(image, Usage(**counts), _names(document))


def read_models(document: Any) -> tuple[str, ...]:
    """The names in a list of models; none where it is no such list."""
    data = _get(document, "data")
    names = [_get(entry, "id") for entry in data] if isinstance(data, list) else []
    return tuple(name for name in names if isinstance(name, str))


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


# -- faults ----------------------------------------------------------------------------------------


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


def classify_response(
    status: int, headers: Mapping[str, str], body: bytes, sent: Collection[str]
) -> ApiError:
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
        return ApiError(kind if wait is None else "throttled", words, status, wait, code=code)
    parameter = None
    if status in (400, 422) and kind == "rejected":
        # Whatever is said against the form of answers, it is the server that does not have it: the
        # user cannot write another.
        if _FORM in sent and (named.startswith(_FORM) or _FORM_REFUSAL.search(words)):
            parameter = _FORM
        elif _REFUSAL.search(words) or _REFUSAL.search(code.replace("_", " ")):
            places = [(m.start(), n) for n in sent if (m := re.search(rf"\b{n}\b", words))]
            parameter = named if named in sent else min(places)[1] if places else None
        if parameter is not None:
            kind = "parameter"
        elif _TOO_LARGE.search(f"{words} {code}"):
            kind = "fatal"
    return ApiError(kind, words, status, parameter=parameter, code=code)


def check_document(document: Any) -> None:
    """Raise ApiError for the fault that some proxies send with status 200."""
    if isinstance(document, dict) and document.get("error"):
        words, code, _ = _error_fields(document, b"")
        policy = any(part in code for part in _POLICY)
        raise ApiError("content" if policy else "again", words, 200, code=code)


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


def requested_wait(headers: Mapping[str, str]) -> float | None:
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
        return max(0.0, date.timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _error_fields(document: Any, body: bytes) -> tuple[str, str, str]:
    """Words, code and named parameter of an error, in the fields of several servers."""
    outer = _first(document) if isinstance(document, list) else document  # a list of Gemini's
    outer = outer if isinstance(outer, dict) else {}
    inner = outer.get("error", outer.get("detail", outer))
    if isinstance(inner, list):  # of FastAPI: one entry for each wrong field
        entries = [entry for entry in inner if isinstance(entry, dict)]
        places = [
            list(map(str, loc)) if isinstance(loc := e.get("loc"), list) else [] for e in entries
        ]
        told = [
            f"{'.'.join(place)}: {entry.get('msg', entry.get('type', ''))}"
            for place, entry in zip(places, entries, strict=True)
        ]
        named = next((place[-1] for place in places if place), "")
        return "; ".join(told[:4]) or describe_body(body), "", named
    if isinstance(inner, dict):
        fields = [inner.get(name) for name in ("code", "type", "param")]
        code, kind, param = (field if isinstance(field, str) else "" for field in fields)
        message = inner.get("message", inner.get("detail"))
        words = message if isinstance(message, str) else describe_body(body)
        return words, (code or kind).lower(), param
    return (inner if isinstance(inner, str) and inner else describe_body(body)), "", ""


_CAUSES: Mapping[int | None, str] = {
    401: "key", 403: "key", 402: "quota", 429: "quota", 400: "size", 413: "size", 422: "size",
}  # fmt: skip
"""Keys of `_MESSAGES` by the status of a fatal fault."""

_MESSAGES: Mapping[str, str] = {
    "key": "refuses the key, or forbids it this model ({status}: {words}). {key}",
    "quota": "wants to be paid ({status}: {words}): the quota of the key is used up",
    "size": "takes no request as large as this one ({status}: {words}). Send smaller images with "
    "max_pixels= in its spec, ask for smaller ones with height=, or raise its limit",
    "redirect": "points elsewhere ({status}), and redirects are not followed: images and prompts "
    "would go wherever a server says. Write the address where the model is served: base_url= in "
    "its spec, or {variable}",
    "model": "does not know this model ({status}: {words}).{listing} Correct the name in --{role} "
    "(or --model)",
    "interface": "has no such interface ({status}: {words}). {address}",
    "unreachable": "cannot be reached ({words}). Start the server. {address}",
    "web page": "answers with {words}. {address}",
    "endless": "sends an answer of more than {words}, which is read no further. {address}",
    "pointer": "gives the address of an image instead of the image, and addresses from answers are "
    "not fetched. Let the server answer with data (response_format=b64_json, which is sent)",
    "logprobs": "gives no probabilities of tokens ({words}). Write logprobs=false in its spec, or "
    "serve the model where they are given (vLLM and SGLang do)",
    "no answer": "answered none of {count} requests; the last fault: {words}.{listing} Check the "
    "server; timeout=, retries= and patience= in the spec set how long the run waits for it{log}",
}
"""What follows name and address of a server that answers no request, by the cause."""

_SHOWN_MODELS = 6  # names of other models


def server_error(
    endpoint: Endpoint, fault: ApiError, listed: Sequence[str] = (), count: int = 0
) -> ModelError:
    """The error of a fault that every request would end with.

    listed: models that the server names, of which the nearest is suggested.
    count: of the requests without an answer.
    """
    cause = fault.cause or _CAUSES.get(fault.status, "interface")
    told = f"{fault.code} {fault.words}".lower()
    if fault.status is not None and 300 <= fault.status < 400:
        cause = "redirect"
    elif fault.status == 404 and (listed or "model" in told or endpoint.model.lower() in told):
        cause = "model"
    set_or_not = "Set" if endpoint.key is None else "Correct"
    key = f"{set_or_not} {endpoint.key_env}, or name another variable with key_env=NAME"
    if endpoint.key_env is None:
        key = "Name the environment variable of its key with key_env=NAME"
    listing = ""
    if listed:
        names = list(map(endpoint.clean, listed))
        more = f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
        hint = did_you_mean(endpoint.model, names)
        listing = f"{hint} It lists {', '.join(names[:_SHOWN_MODELS])}{more}."
    address, log = f"Correct base_url= in its spec, or {URL_VARIABLE} (most end with /v1)", ""
    if endpoint.own is not None:
        address, log = f"See its log, {endpoint.own.log}", f". Its log: {endpoint.own.log}"
    message = _MESSAGES[cause].format(
        words=endpoint.clean(fault.words),
        status=fault.status,
        count=count,
        role=endpoint.role,
        variable=URL_VARIABLE,
        listing=listing,
        key=key,
        address=address,
        log=log,
    )
    return ModelError(f"{endpoint.name}: {endpoint.url} {message}")
