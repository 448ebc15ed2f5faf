"""Faults in the place of answers: what the client does about each, and what users are told.

Nothing that a server sends can be taken for granted. A fault is asked again, shortened by a
parameter, given up for this input, or raised as a ModelError of one line that names the option;
`_KINDS` is the table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from pytest_cepbench.errors import ApiError, FaultKind, ModelError
from pytest_cepbench.escapes import redirect_target
from pytest_cepbench.models.api.endpoint import URL_VARIABLE, Endpoint

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
        parameter = _refused_parameter(words, code, named, sent)
        if parameter is not None:
            kind = "parameter"
        elif _TOO_LARGE.search(f"{words} {code}"):
            kind = "fatal"
    redirect = headers.get("location", "") if 300 <= status < 400 else ""
    return ApiError(kind, words, status, parameter=parameter, code=code, redirect=redirect)


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


# -- what users are told --------------------------------------------------------------------------

_CAUSES: Mapping[int | None, str] = {
    401: "key", 403: "forbidden", 402: "quota", 429: "quota", 400: "size", 413: "size", 422: "size",
}  # fmt: skip
"""Keys of `_MESSAGES` by the status of a fatal fault."""

_MESSAGES: Mapping[str, str] = {
    "key": "refuses the key ({status}: {words}). {key}",
    "forbidden": "forbids it ({status}: {words}): the key has expired, or may not use this model. "
    "{key}",
    "quota": "wants to be paid ({status}: {words}): the quota of the key is used up",
    "size": "takes no request as large as this one ({status}: {words}). Send smaller images with "
    "max_pixels= (or image_format=webp) in its spec, or raise the limit of the server",
    "size generator": "takes no request as large as this one ({status}: {words}). Ask for smaller "
    "images with size= in its spec, or raise the limit of the server",
    "redirect": "points to {target} ({status}), and redirects are not followed: images and prompts "
    "would go wherever a server says. If the model is served there, write that address: base_url= "
    "in its spec, or {variable}",
    "model": "does not know this model ({status}: {words}).{listing} Correct the name in --{role} "
    "(or --model)",
    "interface": "has no such interface ({status}: {words}). {address}",
    "unreachable": "({words}). Start it. {address}",
    "web page": "answers with {words}. {address}",
    "pointer": "gives the address of an image instead of the image, and addresses from answers are "
    "not fetched. Let the server answer with data (response_format=b64_json, which is sent where "
    "the spec does not say none)",
    "logprobs": "gives no probabilities of tokens ({words}). Remove logprobs=true from its spec, "
    'and score = "soft" from the suite that needs it; or serve the model where they are given '
    "(vLLM and SGLang do)",
    "logprobs vqa": "gives no probabilities of tokens ({words}). Add logprobs=false to its spec, "
    "so that its answers are right or wrong; or serve the model where they are given (vLLM and "
    "SGLang do)",
    "no answer": "answered none of {count} requests; the last fault: {words}.{listing} Check the "
    "server; timeout=, retries= and patience= in the spec set how long the run waits for it{log}",
}
"""What follows name and address of a server that answers no request, by the cause, where it makes
a difference with the role."""

_SHOWN_MODELS = 6  # names of other models


def server_error(
    endpoint: Endpoint, fault: ApiError, listed: Sequence[str] = (), count: int = 0
) -> ModelError:
    """The error of a fault that every request would end with.

    listed: models that the server names, of which the nearest is suggested.
    count: of the requests without an answer.
    """
    cause = fault.cause or _CAUSES.get(fault.status, "interface")
    if fault.redirect:
        cause = "redirect"
    elif fault.status == 404 and (
        listed
        or "model" in fault.code
        or "model" in fault.words.lower()
        or endpoint.model in fault.words
    ):
        cause = "model"
    if endpoint.user is not None:
        key = f"Correct the user and password in {URL_VARIABLE}"
    elif endpoint.key_env is None:
        key = "Name the environment variable of its key with key_env=NAME"
    else:
        set_or_not = "Set" if endpoint.key is None else "Correct"
        key = f"{set_or_not} {endpoint.key_env}, or name another variable with key_env=NAME"
    listing = ""
    if listed:
        close = get_close_matches(endpoint.model, listed, n=1)
        hint = f" Did you mean {endpoint.clean(close[0])!r}?" if close else ""
        names = ", ".join(endpoint.clean(name) for name in listed[:_SHOWN_MODELS])
        more = f" and {len(listed) - _SHOWN_MODELS} more" if len(listed) > _SHOWN_MODELS else ""
        listing = f"{hint} It lists {names}{more}."
    address = (
        f"Correct base_url= in its spec, or {URL_VARIABLE} (most servers want it to end with /v1)"
    )
    log = ""
    if endpoint.own is not None:
        address, log = f"See its log, {endpoint.own.log}", f". Its log: {endpoint.own.log}"
    message = _MESSAGES.get(f"{cause} {endpoint.role}") or _MESSAGES[cause]
    verb = "no server answers at " if cause == "unreachable" else ""
    return ModelError(
        f"{endpoint.name}: {verb}{endpoint.url} "
        + message.format(
            words=endpoint.clean(fault.words),
            status=fault.status,
            target=endpoint.clean(redirect_target(fault.redirect, f"{endpoint.url}/")),
            count=count,
            role=endpoint.role,
            variable=URL_VARIABLE,
            listing=listing,
            key=key,
            address=address,
            log=log,
        )
    )
