"""Plain text for a terminal: styled pieces of a line, wrapped lines, shortened words, glyphs."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cepbench.escapes import cut, width_of


@dataclass(frozen=True)
class Span:
    """A piece of a line.

    text: printable.
    style: names of pytest's markup, such as "bold red"; empty for none.
    """

    text: str
    style: str = ""


Line = tuple[Span, ...]


def text_of(line: Line) -> str:
    """A line without its styles."""
    return "".join(span.text for span in line)


@dataclass(frozen=True)
class Glyphs:
    """Characters that tables are drawn with; all but the ellipsis are one column wide.

    rule: below the head of a table.
    interval, point: a change between its bounds.
    tolerance, zero: marks on the axis of changes.
    crossed: a mark that an interval covers.
    ellipsis: in the place of what was left out.
    """

    rule: str
    interval: str
    point: str
    tolerance: str
    zero: str
    crossed: str
    ellipsis: str


UNICODE = Glyphs(
    rule="─", interval="━", point="●", tolerance="┊", zero="·", crossed="┿", ellipsis="…"
)

ASCII = Glyphs(
    rule="-", interval="=", point="o", tolerance="|", zero=".", crossed="+", ellipsis=".."
)


def glyphs_for(encoding: str | None) -> Glyphs:
    """Those of Unicode where the encoding has all of them. encoding: None for UTF-8."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def wrap(text: str, columns: int, indent: str = "  ", ellipsis: str = "") -> list[str]:
    """A line, broken between words where it is wider than so many columns.

    indent: before what is continued, beside the spaces that the line begins with.
    ellipsis: what stands for the middle of a word that no line has room for; without one it stays
    whole and sticks out.
    """
    if width_of(text) <= columns:
        return [text]
    begin = text[: len(text) - len(text.lstrip())]
    first, *words = text.split()
    lines = [begin + first]
    for word in words:
        joined = f"{lines[-1]} {word}"
        if width_of(joined) <= columns:
            lines[-1] = joined
        else:
            lines.append(begin + indent + word)
    if not ellipsis:
        return lines
    return [
        space + shorten(line[len(space) :], columns - len(space), ellipsis)
        for line, space in zip(lines, [begin] + [begin + indent] * (len(lines) - 1), strict=True)
    ]


def fold(text: str, columns: int) -> list[str]:
    """A name on as many lines as it takes, none wider: nothing of it is left out."""
    pieces: list[str] = []
    for line in wrap(text, columns, indent=""):
        rest = line
        while width_of(rest) > columns:
            piece = cut(rest, columns) or rest[0]
            pieces.append(piece)
            rest = rest[len(piece) :]
        pieces.append(rest)
    return pieces


def shorten(text: str, columns: int, ellipsis: str) -> str:
    """A text in so many columns; the ellipsis stands for the middle of what is wider."""
    if width_of(text) <= columns:
        return text
    room = max(0, columns - width_of(ellipsis))
    end = cut(text[::-1], room // 2)[::-1]
    return f"{cut(text, room - room // 2)}{ellipsis}{end}"
