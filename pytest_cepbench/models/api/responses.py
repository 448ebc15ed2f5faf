"""Answers read out of a server's JSON, in which nothing can be taken for granted."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, decode_image
from pytest_cepbench.artifacts.answer import with_reasoning
from pytest_cepbench.errors import (
    ImageError,
    ModelError,
    NoAnswerError,
    NoLogprobsError,
    PointerError,
)
from pytest_cepbench.escapes import redirect_target
from pytest_cepbench.models.api.endpoint import URL_VARIABLE, Endpoint

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
    tokens = (_count(document, "prompt_tokens"), _count(document, "completion_tokens"))
    if reason in _FILTERED:
        value: Any = Failure("refused", "stopped by the provider's content filter")
    else:
        value = read_message(message)
        _refuse_nothing(document, message, value, reason)
    return ApiResponse(value, tokens, _reported(document), cut=reason in _CUT)


def _refuse_nothing(document: Any, message: Mapping[str, Any], value: Any, reason: str) -> None:
    """Raise NoAnswerError for an empty message of which the server does not count a token.

    One that states that it stopped by itself, with an empty text, from a server that counts no
    tokens at all, is a model's answer.
    """
    if value and not (isinstance(value, Failure) and value.kind == "empty-text"):
        return
    written = _get(_get(document, "usage"), "completion_tokens")
    stated = written is None and reason in _WHOLE and message.get("content") is not None
    if not (stated or _count(document, "completion_tokens")):
        raise NoAnswerError(f"an empty message, of no token, with finish_reason {reason or None!r}")


@dataclass(frozen=True)
class TokenLikelihoods:
    """A token of an answer, and those that could have stood in its place.

    token: its text.
    logarithms: log-probabilities by the text of a token, its own among them.
    """

    token: str
    logarithms: Mapping[str, float]


def read_likelihoods(document: Any) -> list[TokenLikelihoods]:
    """The tokens of a chat completion with their log-probabilities.

    Raises NoLogprobsError where the server gives none.
    """
    content = _get(_get(_first(_get(document, "choices")), "logprobs"), "content")
    tokens = [_token(entry) for entry in content] if isinstance(content, list) else []
    likelihoods = [token for token in tokens if token is not None]
    if not likelihoods:
        raise NoLogprobsError
    return likelihoods


def _token(entry: Any) -> TokenLikelihoods | None:
    token, others = _get(entry, "token"), _get(entry, "top_logprobs")
    if not isinstance(token, str) or not isinstance(others, list):
        return None
    logarithms = {}
    for other in (entry, *others):
        text, value = _get(other, "token"), _get(other, "logprob")
        if isinstance(text, str) and isinstance(value, int | float) and value <= 1e-3:
            logarithms[text] = min(float(value), 0.0)
    return TokenLikelihoods(token, logarithms)


def read_image(document: Any) -> ApiResponse:
    """The image in the answer to an image request.

    What is no image is a failure. Raises NoAnswerError where there is none, PointerError where the
    answer gives an address instead.
    """
    image_entry = _first(_get(document, "data"))
    if not isinstance(image_entry, dict):
        raise NoAnswerError(_shape(document, "data"))
    tokens = (_count(document, "input_tokens"), _count(document, "output_tokens"))
    image = decode_entry(image_entry)
    if image is None:
        raise NoAnswerError(_shape(document, "data"))
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


FaultKind = Literal["again", "throttled", "content", "parameter", "rejected", "fatal"]
"""again: another try may succeed.
throttled: the same, and all requests are to slow down.
content: the provider's policy forbids this input.
parameter: the server does not accept one of the parameters.
rejected: this request is wrong to the server.
fatal: every request would end like this one."""

_LONGEST = 100_000
"""Bytes of a body that are read for people. Far less is shown; but a body that is cut before keys
are redacted could keep a part of one."""

_AGAIN = (408, 409, 425)
_WEB_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_POLICY = ("content_policy", "content_filter", "moderation", "invalid_prompt", "safety")
_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
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
    document = read_json(body)
    words, code, named = _error_fields(document, body)
    wait = requested_wait(headers)
    if 300 <= status < 400:
        return ApiFault("fatal", words, status, code=code, redirect=headers.get("location", ""))
    if status == 429 and code not in _QUOTA:
        return ApiFault("throttled", words, status, wait, code=code)
    if status in _AGAIN or (status >= 500 and status != 501):
        return ApiFault("again" if wait is None else "throttled", words, status, wait, code=code)
    if status in (400, 403, 422, 451) and any(part in code for part in _POLICY):
        return ApiFault("content", words, status, code=code)
    if status in (400, 422):
        parameter = _refused_parameter(words, code, named, sent)
        if parameter is not None:
            return ApiFault("parameter", words, status, parameter=parameter, code=code)
    too_large = status == 413 or (status in (400, 422) and _TOO_LARGE.search(f"{words} {code}"))
    lasting = too_large or status < 300 or status in (401, 402, 403, 404, 405, 429)
    return ApiFault("fatal" if lasting else "rejected", words, status, code=code)


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
        words = "; ".join(_describe_entry(entry) for entry in inner[:4])
        locations = [entry.get("loc") for entry in inner if isinstance(entry, dict)]
        names = [str(loc[-1]) for loc in locations if isinstance(loc, list) and loc]
        return words, "", names[0] if names else ""
    if isinstance(inner, dict):
        fields = [inner.get(name) for name in ("code", "type", "param")]
        code, kind, param = (field if isinstance(field, str) else "" for field in fields)
        message = inner.get("message", inner.get("detail"))
        words = message if isinstance(message, str) else describe_body(body)
        return words, (code or kind).lower(), param
    return (inner if isinstance(inner, str) and inner else describe_body(body)), "", ""


def _describe_entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    loc = entry.get("loc")
    field = ".".join(map(str, loc)) if isinstance(loc, list) else ""
    return f"{field}: {entry.get('msg', entry.get('type', ''))}"


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


UNREACHABLE = "unreachable"
"""Code of a fault where no server accepted the connection."""

_SHOWN_MODELS = 6  # names of other models

_BASE_URL = (
    f"Correct base_url= in its spec, or {URL_VARIABLE} (most servers want it to end with /v1)"
)


def fatal_error(endpoint: Endpoint, fault: ApiFault, listed: Sequence[str] = ()) -> ModelError:
    """The error of a fault that every request would end with.

    listed: models that the server names.
    """
    reason = f"{fault.status}: {endpoint.clean(fault.words)}"
    server = f"{endpoint.name}: {endpoint.url}"
    if fault.status == 401:
        return ModelError(f"{server} refuses the key ({reason}). {_key(endpoint)}")
    if fault.status == 403:
        return ModelError(
            f"{server} forbids it ({reason}): the key has expired, or may not use this model. "
            f"{_key(endpoint)}"
        )
    if fault.status in (402, 429):
        return ModelError(f"{server} wants to be paid ({reason}): the quota of the key is used up")
    if fault.status in (400, 413, 422):
        smaller = "Ask for smaller images with size= in its spec"
        if endpoint.role != "generator":
            smaller = "Send smaller images with max_pixels= (or image_format=webp) in its spec"
        return ModelError(
            f"{server} takes no request as large as this one ({reason}). {smaller}, or raise the "
            "limit of the server"
        )
    if fault.redirect:
        target = endpoint.clean(redirect_target(fault.redirect, f"{endpoint.url}/"))
        return ModelError(
            f"{server} points to {target} ({fault.status}), and redirects are not followed: images "
            "and prompts would go wherever a server says. If the model is served there, write that "
            f"address: base_url= in its spec, or {URL_VARIABLE}"
        )
    names_model = "model" in fault.code or endpoint.model in fault.words
    if fault.status == 404 and (listed or names_model or "model" in fault.words.lower()):
        wrong = f"does not know this model ({reason}).{_listing(endpoint, listed)}"
        remedy = f"Correct the name in --{endpoint.role} (or --model)"
    else:
        wrong, remedy = f"has no such interface ({reason}).", _remedy(endpoint)
    return ModelError(f"{server} {wrong} {remedy}")


def unreachable_error(endpoint: Endpoint, fault: ApiFault) -> ModelError:
    """The error of an address where no server is."""
    return ModelError(
        f"{endpoint.name}: no server answers at {endpoint.url} ({endpoint.clean(fault.words)}). "
        f"Start it. {_remedy(endpoint)}"
    )


def web_page_error(endpoint: Endpoint, words: str) -> ModelError:
    """The error of an address that serves a web site."""
    return ModelError(
        f"{endpoint.name}: {endpoint.url} answers with {endpoint.clean(words)}. {_remedy(endpoint)}"
    )


def pointer_error(endpoint: Endpoint) -> ModelError:
    """The error of a server that answers with the addresses of its images."""
    return ModelError(
        f"{endpoint.name}: {endpoint.url} gives the address of an image instead of the image, and "
        "addresses from answers are not fetched. Let the server answer with data "
        "(response_format=b64_json, which is sent where the spec does not say none)"
    )


def logprobs_error(endpoint: Endpoint, words: str) -> ModelError:
    """The error of a server without the probabilities of tokens. words: how it shows."""
    remedy = 'Remove logprobs=true from its spec, and score = "soft" from the suite that needs it'
    if endpoint.role == "vqa":
        remedy = "Add logprobs=false to its spec, so that its answers are right or wrong"
    return ModelError(
        f"{endpoint.name}: {endpoint.url} gives no probabilities of tokens "
        f"({endpoint.clean(words)}). {remedy}; or serve the model "
        "where they are given (vLLM and SGLang do)"
    )


def no_answer_error(
    endpoint: Endpoint, count: int, words: str, listed: Sequence[str] = ()
) -> ModelError:
    """The error of a batch without any answer. words: of the last fault."""
    missing = bool(listed) and endpoint.model not in listed
    return ModelError(
        f"{endpoint.name}: {endpoint.url} answered none of {count} requests; the last fault: "
        f"{endpoint.clean(words)}.{_listing(endpoint, listed) if missing else ''} Check the "
        "server; timeout=, retries= and patience= in the spec set how long the run waits for it"
        f"{f'. Its log: {endpoint.log}' if endpoint.log else ''}"
    )


def _remedy(endpoint: Endpoint) -> str:
    """Where to look for the fault of an address."""
    return f"See its log, {endpoint.log}" if endpoint.log else _BASE_URL


def _listing(endpoint: Endpoint, listed: Sequence[str]) -> str:
    """The models that the server lists, in words, with the nearest name first."""
    if not listed:
        return ""
    close = get_close_matches(endpoint.model, listed, n=1)
    hint = f" Did you mean {endpoint.clean(close[0])!r}?" if close else ""
    names = ", ".join(endpoint.clean(name) for name in listed[:_SHOWN_MODELS])
    more = f" and {len(listed) - _SHOWN_MODELS} more" if len(listed) > _SHOWN_MODELS else ""
    return f"{hint} It lists {names}{more}."


def _key(endpoint: Endpoint) -> str:
    if endpoint.user is not None:
        return f"Correct the user and password in {URL_VARIABLE}"
    if endpoint.key_env is None:
        return "Name the environment variable of its key with key_env=NAME"
    set_or_not = "Set" if endpoint.key is None else "Correct"
    return f"{set_or_not} {endpoint.key_env}, or name another variable with key_env=NAME"
