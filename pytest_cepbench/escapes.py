r"""Text from models, data sets, files and servers where people look at it: nothing in it is hidden.

Standard library only. A terminal obeys control characters, and everything that lays out text obeys
those that turn its direction; others take no room at all, so that two names look like one. Wherever
people look, such a character is shown as its escape: `\x1b`, `\u202e`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_NOT_ASCII = re.compile(r"[^ -~]")

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U000e0100-\U000e01ef]")
"""Characters that Python calls printable and that show nothing: fillers, the empty braille cell, and
the selectors of variants that no emoji needs."""

_BETWEEN_WORDS = "\t\n\v\f\r"  # what is a space where text is put on one line


def visible(text: str, keep: str = "\n\t") -> str:
    """The text with every character that does not show itself as its escape.

    These are control characters, those that direct or join others (U+202E, U+200B, U+200D), fillers,
    what is not assigned, and halves of surrogate pairs. A space of any width is a space. keep:
    characters that stay as they are.
    """
    if text.isascii() and text.isprintable():  # most texts by far
        return text

    def shown(found: re.Match[str]) -> str:
        char = found[0]
        if char in keep or _shows(char):
            return char
        return " " if _is_space(char) else char.encode("unicode_escape").decode("ascii")

    return _NOT_ASCII.sub(shown, text)


def one_line(text: str, most: int = 200) -> str:
    """`visible` text on one line, words apart by one space; cut with dots where it is too long."""
    line = " ".join(visible(text, _BETWEEN_WORDS).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def escape_json(document: str) -> str:
    """The JSON document with such characters as JSON's escapes: programs read the same from it.

    Line ends, which lie between its strings, stay.
    """

    def shown(char: str) -> str:
        units = char.encode("utf-16-be", "surrogatepass")
        pairs = (units[i : i + 2] for i in range(0, len(units), 2))
        return "".join(f"\\u{pair.hex()}" for pair in pairs)

    return _escape_quoted(document, shown)


def escape_toml(document: str) -> str:
    """The same for a TOML document whose strings are basic ones."""
    return _escape_quoted(
        document,
        lambda char: f"\\u{ord(char):04x}" if char < "\U00010000" else f"\\U{ord(char):08x}",
    )


def _escape_quoted(document: str, shown: Callable[[str], str]) -> str:
    return _NOT_ASCII.sub(
        lambda found: found[0] if found[0] == "\n" or _shows(found[0]) else shown(found[0]),
        document,
    )


def _shows(char: str) -> bool:
    return char.isprintable() and not _BLANK.match(char)


def _is_space(char: str) -> bool:
    return unicodedata.category(char) == "Zs"
