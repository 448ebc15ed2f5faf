"""Keys are found in texts, specs and log lines, in any form, and taken out."""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar
from urllib.parse import urlsplit

from pytest_cepbench.errors import SpecError
from pytest_cepbench.escapes import HIDDEN, SECRET_FROM, mask_secrets, one_line
from pytest_cepbench.models.model_spec import ModelSpec

_SPLIT_FROM = 16
"""Letters of a secret that is also found with gaps in it; a shorter one may be ordinary words."""

_Read = Callable[[re.Match[str]], str]

_Coded = tuple[str, bool, bool]
"""Letters of base64, and whether those before and behind them go with them."""

T = TypeVar("T")

_LEVELS = 3  # of escapes inside escapes

_ESCAPE = re.compile(
    r"%(?P<url>[0-9a-f]{2})|\\{1,4}u(?P<json>[0-9a-f]{4})|\\{1,4}x(?P<byte>[0-9a-f]{2})"
    r"|&\#x(?P<html>[0-9a-f]{1,6});|&\#(?P<decimal>[0-9]{1,7});|\\{1,4}(?P<itself>[/\"'\\nrt])",
    re.IGNORECASE,
)

_GAP = re.compile(r"[\s\x00-\x1f\x7f-\xa0\xad\u034f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]+")
"""White space, and characters that show nothing."""

_HEX_GAP = re.compile(r"[\s:,-]+|0x|\\{1,4}x", re.IGNORECASE)

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

_LOWER_BASE64 = _LOWER | {ord("-"): "+", ord("_"): "/"}
"""Both alphabets of base64 are one. Case is ignored: a few more hits than the secret's
own do no harm."""

_BASE64 = frozenset("abcdefghijklmnopqrstuvwxyz0123456789+/")


@dataclass(frozen=True)
class _Reading:
    """A text with some of its characters read for others, or left out.

    starts, ends: of what each character was made of in the text as it came.
    """

    text: str
    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, text: str) -> _Reading:
        """Every character for itself."""
        return cls(text, list(range(len(text))), list(range(1, len(text) + 1)))

    def replaced(self, pattern: re.Pattern[str], read: _Read) -> _Reading:
        """The text with matches of the pattern read as a character, or left out."""
        texts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        at = 0
        for match in pattern.finditer(self.text):
            low, high = match.span()
            char = read(match)
            texts += (self.text[at:low], char)
            starts += self.starts[at:low]
            ends += self.ends[at:low]
            if char:
                starts.append(self.starts[low])
                ends.append(self.ends[high - 1])
            at = high
        texts.append(self.text[at:])
        return _Reading("".join(texts), starts + self.starts[at:], ends + self.ends[at:])


def _unescaped(match: re.Match[str]) -> str:
    kind, digits = next((kind, text) for kind, text in match.groupdict().items() if text)
    if kind == "itself":
        return "\n" if digits in "nrtNRT" else digits
    code = int(digits, 10 if kind == "decimal" else 16)
    return chr(code) if code < 0x110000 else "\ufffd"


def _occurrences(text: str, form: str) -> Iterator[tuple[int, int]]:
    low = text.find(form)
    while low >= 0:
        yield low, low + len(form)
        low = text.find(form, low + 1)


def _widened(text: str, low: int, high: int, *, before: bool, behind: bool) -> tuple[int, int]:
    """With the letters that hold a few bits, and the padding."""
    if before and low and text[low - 1] in _BASE64:
        low -= 1
    if behind and high < len(text) and text[high] in _BASE64:
        high += 1
    while high < len(text) and text[high] == "=":
        high += 1
    return low, high


_LONGEST = 300  # letters of a server's words

_KEY_NAMES = ("api_key", "apikey", "key", "token", "secret", "password", "authorization", "bearer")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LOOKS_LIKE_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|gsk|xai|nvapi)-[A-Za-z0-9_*.-]{6,}|hf_[A-Za-z0-9*.]{16,})"
)
_FREE_TEXTS = ("base_url", "weights", "system_prompt", "negative_prompt")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=*-]{6,}")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


class Secret:
    """A key that is hidden in tracebacks and every other repr, and found in any text.

    It is found in the forms in which a server may repeat it: as it is and reversed, its letters of
    any case and any of them an escape of URLs, JSON or HTML; in hexadecimal digits; in base64 of
    both alphabets, also as a part of what was encoded; and, from 16 letters on, over line ends and
    other gaps. A server that wants to hide it otherwise can.
    """

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return HIDDEN

    def reveal(self) -> str:
        """The key itself, for the client alone."""
        return self._value

    def remove_from(self, text: str) -> str:
        """The text without the key. A short one is no secret, and would be found in any text."""
        # Most texts hold no key: where everything was is worked out only for those that do.
        if len(self._value) < SECRET_FROM or not self._is_in(text):
            return text
        pieces, at = [], 0
        for low, high in sorted(self._spans(text)):
            if low >= at:
                pieces += [text[at:low], HIDDEN]
            at = max(at, high)
        return "".join([*pieces, text[at:]])

    def _is_in(self, text: str) -> bool:
        readings = self._readings(
            text, lambda read: read, lambda read, what, by: what.sub(by, read)
        )
        return any(
            any(form in read.translate(_LOWER) for form in plain)
            or any(core in read.translate(_LOWER_BASE64) for core, _, _ in coded)
            for read, plain, coded in readings
        )

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        whole = _Reading.of(text)
        readings = self._readings(whole, lambda reading: reading.text, _Reading.replaced)
        for reading, plain, coded in readings:
            lower = reading.text.translate(_LOWER)
            spans = [span for form in plain for span in _occurrences(lower, form)]
            lower = reading.text.translate(_LOWER_BASE64)
            spans += [
                _widened(lower, *span, before=before, behind=behind)
                for core, before, behind in coded
                for span in _occurrences(lower, core)
            ]
            for low, high in spans:
                yield reading.starts[low], reading.ends[high - 1]

    def _readings(
        self,
        whole: T,
        text_of: Callable[[T], str],
        replaced: Callable[[T, re.Pattern[str], _Read], T],
    ) -> Iterator[tuple[T, Sequence[str], Sequence[_Coded]]]:
        """The text as it is and without gaps, then the same with its escapes read, and again; each
        with the forms to look for in it.
        """
        for _ in range(_LEVELS + 1):
            yield whole, self._plain, self._base64
            text = text_of(whole)
            if len(self._value) >= _SPLIT_FROM and _GAP.search(text):
                yield replaced(whole, _GAP, lambda _: ""), self._plain, self._base64
            if _HEX_GAP.search(text):
                yield replaced(whole, _HEX_GAP, lambda _: ""), (self._plain[-1],), ()
            if not _ESCAPE.search(text):
                return
            whole = replaced(whole, _ESCAPE, _unescaped)

    @cached_property
    def _plain(self) -> list[str]:
        """The forms in which every letter counts, in lower case, the digits last."""
        data = self._value.encode("utf-8", "surrogatepass")
        bytewise = data.decode("latin-1")  # as the bytes of a URL's escapes are read
        forms = dict.fromkeys((self._value, bytewise, self._value[::-1], bytewise[::-1]))
        return [*(form.translate(_LOWER) for form in forms), data.hex()]

    @cached_property
    def _base64(self) -> list[_Coded]:
        """For each place that the secret can have in groups of three bytes: the letters that it
        alone decides, and whether the letters before and behind them hold some of its bits.
        """
        data = self._value.encode("utf-8", "surrogatepass")
        forms = []
        for before in range(3):
            low, high = 8 * before, 8 * (before + len(data))
            encoded = b64encode(b"\0" * before + data).decode("ascii")
            core = encoded[-(-low // 6) : high // 6].translate(_LOWER_BASE64)
            forms.append((core, low % 6 > 0, high % 6 > 0))
        return forms


def refuse_secrets(spec: ModelSpec) -> None:
    """Raise SpecError where a spec holds what looks like a key; the message does not repeat it.

    Specs are printed, stored and reported.
    """
    remedy = (
        "Keys come from the environment: set OPENAI_API_KEY, or name another variable with "
        "key_env=NAME"
    )
    for name, value in spec.params.items():
        shown = f"model spec {spec.scheme}:{without_secrets(spec.target)}"
        if name.lower() in _KEY_NAMES:
            msg = f"{shown}: {name}= has no place in a spec, which is printed and stored. {remedy}"
            raise SpecError(msg)
        if (
            name == "key_env"
            and value.lower() not in ("", "none")
            and not _VARIABLE.fullmatch(value)
        ):
            msg = (
                f"{shown}: key_env is the NAME of an environment variable, in capitals; what was "
                f"given is none (it is not shown, since it may be a key). {remedy}"
            )
            raise SpecError(msg)
        if name == "base_url" and any(mark in value for mark in "@?#"):
            msg = (
                f"{shown}: base_url holds a user, a password or a query, which have no place in a "
                "spec: it is printed and stored. Set OPENAI_BASE_URL instead"
            )
            raise SpecError(msg)
        if name not in _FREE_TEXTS and _LOOKS_LIKE_KEY.search(value):
            msg = f"{shown}: the value of {name} looks like a key. {remedy}"
            raise SpecError(msg)


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(a URL that cannot be read)"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}".rstrip("/")


def without_secrets(text: str, secrets: Iterable[Secret] = ()) -> str:
    """A server's words on one line, shortened, without keys and anything that looks like one.

    Servers repeat the key they refuse, whole or in part; other programs what the environment holds.
    """
    text = mask_secrets(text)
    for secret in secrets:
        text = secret.remove_from(text)
    text = _LOOKS_LIKE_KEY.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _USERINFO.sub("", text)
    return one_line(text[: 20 * _LONGEST], _LONGEST)


_LIBRARIES = ("openai", "httpx", "httpcore")  # also under newer names that begin so


class _Redaction(logging.Filter):
    """Removes the secrets of any number of servers from every record."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: tuple[Secret, ...] = ()

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass the record on, with secrets removed from its message and its exception."""
        message = record.getMessage()
        clean = self._clean(message)
        if clean != message:
            record.msg, record.args = clean, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = self._clean(logging.Formatter().formatException(record.exc_info))
        return True

    def _clean(self, text: str) -> str:
        for secret in self.secrets:
            text = secret.remove_from(text)
        return text


_REDACTION = _Redaction()


def redact_logs(secrets: Iterable[Secret]) -> None:
    """Remove these secrets from the logs of the client's libraries, which are imported by now."""
    _REDACTION.secrets += tuple(secrets)
    # A filter works for its own logger alone, not for those below it.
    for name in [*logging.root.manager.loggerDict]:
        if name.partition(".")[0].startswith(_LIBRARIES):
            logging.getLogger(name).addFilter(_REDACTION)
