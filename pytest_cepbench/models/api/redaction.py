"""Keys are found in texts, specs and log lines, and taken out."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar
from urllib.parse import urlsplit

from pytest_cepbench.errors import SpecError
from pytest_cepbench.escapes import HIDDEN, SECRET_FROM, mask_secrets, one_line
from pytest_cepbench.models.spec import ModelSpec

_SPLIT_FROM = 16
"""Letters of a secret that is also found with gaps in it; a shorter one may be ordinary words."""

_Read = Callable[[re.Match[str]], str]

T = TypeVar("T")

_LEVELS = 3  # of escapes inside escapes

_ESCAPE = re.compile(
    r"%(?P<url>[0-9a-f]{2})|\\{1,4}u(?P<json>[0-9a-f]{4})|\\{1,4}x(?P<byte>[0-9a-f]{2})"
    r"|&\#x(?P<html>[0-9a-f]{1,6});|&\#(?P<decimal>[0-9]{1,7});|\\{1,4}(?P<itself>[/\"'\\nrt])",
    re.IGNORECASE,
)

_GAP = re.compile(r"[\s\x00-\x1f\x7f-\xa0\xad\u034f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]+")
"""White space, and characters that show nothing."""

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


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

    It is found in the forms in which a server may repeat it: its letters of any case, any of them
    an escape of URLs, JSON or HTML, and, from 16 letters on, over line ends and other gaps. A
    server that wants to hide it, in base64 for instance, can.
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
        return any(form in read.translate(_LOWER) for read in readings for form in self._forms)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        whole = _Reading.of(text)
        for reading in self._readings(whole, lambda reading: reading.text, _Reading.replaced):
            lower = reading.text.translate(_LOWER)
            for form in self._forms:
                low = lower.find(form)
                while low >= 0:
                    yield reading.starts[low], reading.ends[low + len(form) - 1]
                    low = lower.find(form, low + 1)

    def _readings(
        self,
        whole: T,
        text_of: Callable[[T], str],
        replaced: Callable[[T, re.Pattern[str], _Read], T],
    ) -> Iterator[T]:
        """The text as it is and without gaps, then the same with its escapes read, and again."""
        for _ in range(_LEVELS + 1):
            yield whole
            text = text_of(whole)
            if len(self._value) >= _SPLIT_FROM and _GAP.search(text):
                yield replaced(whole, _GAP, lambda _: "")
            if not _ESCAPE.search(text):
                return
            whole = replaced(whole, _ESCAPE, _unescaped)

    @cached_property
    def _forms(self) -> set[str]:
        """The key, and the bytes of it that escapes of a URL are read as, in lower case."""
        data = self._value.encode("utf-8", "surrogatepass")
        return {form.translate(_LOWER) for form in (self._value, data.decode("latin-1"))}


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
            raise SpecError(
                f"{shown}: {name}= has no place in a spec, which is printed and stored. {remedy}"
            )
        if (
            name == "key_env"
            and value.lower() not in ("", "none")
            and not _VARIABLE.fullmatch(value)
        ):
            raise SpecError(
                f"{shown}: key_env is the NAME of an environment variable, in capitals; what was "
                f"given is none (it is not shown, since it may be a key). {remedy}"
            )
        if name == "base_url" and any(mark in value for mark in "@?#"):
            raise SpecError(
                f"{shown}: base_url holds a user, a password or a query, which have no place in a "
                "spec: it is printed and stored. Set OPENAI_BASE_URL instead"
            )
        if name not in _FREE_TEXTS and _LOOKS_LIKE_KEY.search(value):
            raise SpecError(f"{shown}: the value of {name} looks like a key. {remedy}")


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
