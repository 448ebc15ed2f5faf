"""What a server's refusal means: ask again, leave something out, give up this input, or give up."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec

FaultKind = Literal["again", "throttled", "content", "parameter", "rejected", "fatal"]
"""again: it may go better another time. throttled: the same, and everybody is to slow down. content: the
provider's policy forbids this input. parameter: one that this server does not take. rejected: this
request is wrong to the server. fatal: every request would end like this one."""

_LONGEST = 100_000
"""Bytes of a body that are read for people. What is shown is far less; but where it is cut before keys
are taken out of it, a part of one would stay."""

_AGAIN = (408, 409, 425)
_WEB_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_POLICY = ("content_policy", "content_filter", "moderation", "invalid_prompt", "safety")
_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_NOT_TAKEN = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|additional propert|"
    r"not available|only the default|extra_forbidden",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ApiFault:
    """Why there is no answer.

    words: the server's or the network's own. status: of HTTP, None where there was no answer at all.
    wait: seconds that the server asks to wait. parameter: which one it does not take. code: its own
    name of the fault, lower case. pointed: the address that a redirect points to, as the server wrote
    it.
    """

    kind: FaultKind
    words: str
    status: int | None = None
    wait: float | None = None
    parameter: str | None = None
    code: str = ""
    pointed: str = ""


def fault_of(
    status: int, headers: Mapping[str, str], body: bytes, sent: Collection[str]
) -> ApiFault:
    """What a status that is not 200 means. sent: parameters that the request could do without."""
    document = read_json(body)
    words, code, named = _said(document, body)
    wait = wait_asked(headers)
    if 300 <= status < 400:
        return ApiFault("fatal", words, status, code=code, pointed=headers.get("location", ""))
    if status == 429 and code not in _QUOTA:
        return ApiFault("throttled", words, status, wait, code=code)
    if status in _AGAIN or (status >= 500 and status != 501):
        return ApiFault("again" if wait is None else "throttled", words, status, wait, code=code)
    if status in (400, 403, 422, 451) and any(part in code for part in _POLICY):
        return ApiFault("content", words, status, code=code)
    if status in (400, 422):
        parameter = _not_taken(words, code, named, sent)
        if parameter is not None:
            return ApiFault("parameter", words, status, parameter=parameter, code=code)
    lasting = status < 300 or status in (401, 402, 403, 404, 405, 429)
    return ApiFault("fatal" if lasting else "rejected", words, status, code=code)


def error_inside(document: Any) -> ApiFault | None:
    """The fault that some proxies send with a status of 200, None where there is none."""
    if not isinstance(document, dict) or not document.get("error"):
        return None
    words, code, _ = _said(document, b"")
    policy = any(part in code for part in _POLICY)
    return ApiFault("content" if policy else "again", words, 200, code=code)


def read_json(body: bytes) -> Any:
    """The document in a body, None for anything that is not JSON."""
    try:
        return msgspec.json.decode(body)
    # Whatever a stranger may send: no JSON, wrong encoding, ten thousand brackets.
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def in_words(body: bytes) -> str:
    """What a body that is no JSON is, for people."""
    text = body[:_LONGEST].decode("utf-8", "replace")
    if _WEB_PAGE.match(text):
        title = _TITLE.search(text)
        return f"a web page ({title[1].strip()})" if title else "a web page"
    return text.strip() or "an empty answer"


def is_web_page(body: bytes) -> bool:
    """Whether a body is HTML."""
    return bool(_WEB_PAGE.match(body[:200].decode("utf-8", "replace")))


def wait_asked(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Seconds that a server asks to wait: retry-after-ms, or Retry-After in seconds or as a date."""
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


def _said(document: Any, body: bytes) -> tuple[str, str, str]:
    """Words, code and the parameter named, wherever servers put them."""
    outer = document if isinstance(document, dict) else {}
    inner = outer.get("error", outer.get("detail", outer))
    if isinstance(inner, list):  # of FastAPI: one entry for each wrong field
        words = "; ".join(_entry(one) for one in inner[:4])
        where = [one.get("loc") for one in inner if isinstance(one, dict)]
        places = [str(loc[-1]) for loc in where if isinstance(loc, list) and loc]
        return words, "", places[0] if places else ""
    if isinstance(inner, dict):
        about = [inner.get(name) for name in ("code", "type", "param")]
        code, kind, param = (one if isinstance(one, str) else "" for one in about)
        told = inner.get("message", inner.get("detail"))
        return (told if isinstance(told, str) else in_words(body)), (code or kind).lower(), param
    return (inner if isinstance(inner, str) and inner else in_words(body)), "", ""


def _entry(one: Any) -> str:
    if not isinstance(one, dict):
        return str(one)
    where = one.get("loc")
    place = ".".join(map(str, where)) if isinstance(where, list) else ""
    return f"{place}: {one.get('msg', one.get('type', ''))}"


def _not_taken(words: str, code: str, named: str, sent: Collection[str]) -> str | None:
    """The parameter that a refusal is about, if it says that the server does not take it."""
    if not (_NOT_TAKEN.search(words) or _NOT_TAKEN.search(code.replace("_", " "))):
        return None
    if named in sent:
        return named
    mentioned = [(match.start(), n) for n in sent if (match := re.search(rf"\b{n}\b", words))]
    return min(mentioned)[1] if mentioned else None
