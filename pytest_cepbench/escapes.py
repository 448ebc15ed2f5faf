r"""Safe display of text from models, data sets, files and servers: nothing in it stays hidden, and
what the environment holds of keys is not shown.

A terminal obeys control characters, and everything that lays out text obeys those that turn its
direction; others have no width, so that two names look alike. Reports and messages show such a
character as its escape: `\x1b`, `\u202e`. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

_NOT_ASCII = re.compile(r"[^ -~]")

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U000e0100-\U000e01ef]")
"""Characters that Python calls printable and that show nothing: fillers, the empty braille cell,
and the selectors of variants that no emoji needs."""

_BETWEEN_WORDS = "\t\n\v\f\r"  # become spaces where text is put on one line


def visible(text: str, keep: str = "\n\t") -> str:
    """The text with its invisible characters as escapes.

    These are control characters, those that direct or join others (U+202E, U+200B, U+200D),
    fillers, unassigned code points, and halves of surrogate pairs. A space of any width becomes a
    space.

    keep: characters that stay as they are.
    """
    if text.isascii() and text.isprintable():  # most texts by far
        return text

    def shown(match: re.Match[str]) -> str:
        char = match[0]
        if char in keep or _shows(char):
            return char
        is_space = unicodedata.category(char) == "Zs"
        return " " if is_space else char.encode("unicode_escape").decode("ascii")

    return _NOT_ASCII.sub(shown, text)


def one_line(text: str, most: int = 200) -> str:
    """`visible` text on one line with single spaces.

    most: characters, after which the text is cut with dots.
    """
    line = " ".join(visible(text, _BETWEEN_WORDS).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def plain_line(text: str, most: int = 200) -> str:
    """A model's words on one line, without control characters and those without width, cut.

    most: characters.
    """
    spaced = "".join(
        " " if char.isspace() else char
        for char in text[: 4 * most]
        if char.isspace() or not unicodedata.category(char).startswith("C")
    )
    return " ".join(spaced.split())[:most].rstrip()


HIDDEN = "[key]"
"""Shown in the place of a key."""

SECRET_FROM = 8
"""Least letters of a secret: servers without keys are given "EMPTY" or "none", which are words."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:keys?|auth|pass|pat|sig)(?:$|_)|_pwd$|(?:api|access|secret|private)_?key"
    r"|token(?!s|iz)|secret|passw|passphrase|credential|signature|authorization",
    re.IGNORECASE,
)

_PLACE_NAME = re.compile(r"_(?:file|path|dir|sock)$", re.IGNORECASE)  # says where a key lies


def is_secret_name(name: str) -> bool:
    """Whether the value of a variable, an option or a parameter of this name is a key."""
    name = name.lstrip("-").replace("-", "_")
    return bool(_SECRET_NAME.search(name)) and not _PLACE_NAME.search(name)


def environment_secrets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Name -> value of the variables that hold keys of at least `SECRET_FROM` letters."""
    values = {name: value.strip() for name, value in environment.items() if is_secret_name(name)}
    return {name: value for name, value in values.items() if len(value) >= SECRET_FROM}


def mask_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text of a foreign program without the keys that the environment holds.

    They are found as they are, by any of their longer lines, and as parts of a URL.
    """
    forms: set[str] = set()
    for value in environment_secrets(environment).values():
        lines = [line.strip() for line in value.splitlines()]
        for part in (value, *(line for line in lines if len(line) >= 2 * SECRET_FROM)):
            forms.update((part, quote(part, safe=""), quote_plus(part)))
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def width_of(text: str) -> int:
    """Columns of a terminal that a printable text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("F", "W") else 1


def cut(text: str, columns: int) -> str:
    """As much of a printable text as fits."""
    width = 0
    for place, char in enumerate(text):
        width += width_of(char)
        if width > columns:
            return text[:place]
    return text


def escape_json(document: str) -> str:
    """The JSON document with invisible characters as JSON escapes; its meaning does not change.

    Line ends, which lie between its strings, stay.
    """

    def shown(char: str) -> str:
        units = char.encode("utf-16-be", "surrogatepass")
        pairs = (units[i : i + 2] for i in range(0, len(units), 2))
        return "".join(f"\\u{pair.hex()}" for pair in pairs)

    return _escape_quoted(document, shown)


def quote_toml(text: str) -> str:
    """A TOML basic string, in which no character is hidden.

    JSON's escapes are a subset of TOML's. Lone surrogates (a path that is not UTF-8) are shown as
    their escapes: no TOML file can hold them.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    return _escape_quoted(
        json.dumps(text, ensure_ascii=False),
        lambda char: f"\\u{ord(char):04x}" if char < "\U00010000" else f"\\U{ord(char):08x}",
    )


def _escape_quoted(document: str, shown: Callable[[str], str]) -> str:
    return _NOT_ASCII.sub(
        lambda match: match[0] if match[0] == "\n" or _shows(match[0]) else shown(match[0]),
        document,
    )


def _shows(char: str) -> bool:
    return char.isprintable() and not _BLANK.match(char)
