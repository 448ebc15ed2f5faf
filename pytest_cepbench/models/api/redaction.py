"""Taking a secret out of a text that repeats it: as it is, reversed, or in a common encoding."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

_SPLIT_FROM = 16
"""Letters of a secret that is also found with gaps in it; a shorter one may be two words of a text."""

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
"""Both alphabets of base64 are one. Letters of other case are told apart by nothing: a few more hits
than the secret's own do no harm."""

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
        """What the pattern finds read for a character, or left out."""
        texts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        at = 0
        for found in pattern.finditer(self.text):
            low, high = found.span()
            char = read(found)
            texts += (self.text[at:low], char)
            starts += self.starts[at:low]
            ends += self.ends[at:low]
            if char:
                starts.append(self.starts[low])
                ends.append(self.ends[high - 1])
            at = high
        texts.append(self.text[at:])
        return _Reading("".join(texts), starts + self.starts[at:], ends + self.ends[at:])


class Redactor:
    """Finds a secret in any text, in the forms in which a server may repeat it.

    As it is and reversed, its letters of any case and any of them an escape of URLs, JSON or HTML;
    in hexadecimal digits; in base64 of both alphabets, also as a part of what was encoded; and, from 16
    letters on, over line ends and other gaps. Who wants to hide it otherwise can.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def redact(self, text: str, mark: str) -> str:
        """The text with a mark in the place of the secret."""
        if not self._is_in(text):  # without the work of knowing where everything was
            return text
        pieces, at = [], 0
        for low, high in sorted(self._spans(text)):
            if low >= at:
                pieces += [text[at:low], mark]
            at = max(at, high)
        return "".join([*pieces, text[at:]])

    def _is_in(self, text: str) -> bool:
        readings = self._readings(text, lambda one: one, lambda one, what, by: what.sub(by, one))
        return any(
            any(form in one.translate(_LOWER) for form in plain)
            or any(core in one.translate(_LOWER_BASE64) for core, _, _ in coded)
            for one, plain, coded in readings
        )

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        whole = _Reading.of(text)
        readings = self._readings(whole, lambda one: one.text, _Reading.replaced)
        for reading, plain, coded in readings:
            lower = reading.text.translate(_LOWER)
            places = [place for form in plain for place in _places(lower, form)]
            lower = reading.text.translate(_LOWER_BASE64)
            places += [
                _widened(lower, *place, before=before, behind=behind)
                for core, before, behind in coded
                for place in _places(lower, core)
            ]
            for low, high in places:
                yield reading.starts[low], reading.ends[high - 1]

    def _readings(
        self,
        whole: T,
        text_of: Callable[[T], str],
        replaced: Callable[[T, re.Pattern[str], _Read], T],
    ) -> Iterator[tuple[T, Sequence[str], Sequence[_Coded]]]:
        """The text as it is and without gaps, then the same with its escapes read, and again; each with
        the forms to look for in it.
        """
        for _ in range(_LEVELS + 1):
            yield whole, self._plain, self._base64
            text = text_of(whole)
            if len(self._secret) >= _SPLIT_FROM and _GAP.search(text):
                yield replaced(whole, _GAP, _nothing), self._plain, self._base64
            if _HEX_GAP.search(text):
                yield replaced(whole, _HEX_GAP, _nothing), (self._plain[-1],), ()
            if not _ESCAPE.search(text):
                return
            whole = replaced(whole, _ESCAPE, _unescaped)

    @cached_property
    def _plain(self) -> list[str]:
        """The forms in which every letter counts, in lower case, the digits last."""
        data = self._secret.encode("utf-8", "surrogatepass")
        bytewise = data.decode("latin-1")  # as the bytes of a URL's escapes are read
        forms = dict.fromkeys((self._secret, bytewise, self._secret[::-1], bytewise[::-1]))
        return [*(form.translate(_LOWER) for form in forms), data.hex()]

    @cached_property
    def _base64(self) -> list[_Coded]:
        """For each place that the secret can have in groups of three bytes: the letters that it alone
        decides, and whether the letters before and behind them hold some of its bits.
        """
        data = self._secret.encode("utf-8", "surrogatepass")
        found = []
        for before in range(3):
            low, high = 8 * before, 8 * (before + len(data))
            encoded = b64encode(b"\0" * before + data).decode("ascii")
            core = encoded[-(-low // 6) : high // 6].translate(_LOWER_BASE64)
            found.append((core, low % 6 > 0, high % 6 > 0))
        return found


def _unescaped(found: re.Match[str]) -> str:
    kind, digits = next((kind, text) for kind, text in found.groupdict().items() if text)
    if kind == "itself":
        return "\n" if digits in "nrtNRT" else digits
    code = int(digits, 10 if kind == "decimal" else 16)
    return chr(code) if code < 0x110000 else "\ufffd"


def _nothing(_: re.Match[str]) -> str:
    return ""


def _places(text: str, form: str) -> Iterator[tuple[int, int]]:
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
