"""Output of a command: pages of headings, lines and tables for the terminal; files.

Results go to stdout, progress and complaints to stderr. At a terminal tables have styles; in
a pipe or a file they are the same text without styles.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pytest_cepbench._version import __version__
from pytest_cepbench.errors import WriteError
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.escapes import one_line as printable

if TYPE_CHECKING:
    from pytest_cepbench.metrics.correlation import Correlation

NOT_DONE, MISTAKE, INTERRUPTED = 1, 2, 130
"""Exit codes: something could not be measured, accepted or written; a mistake in what was asked;
interrupted."""

SCHEMA = 1
"""Of JSON documents; raised when a field changes its meaning."""

HOME = Path(".cepbench")
"""Folder of everything that a command leaves behind by default, never to be committed."""

LONGEST_NAME = 32
"""Characters of a name in a table of the terminal; longer ones lose their beginning, since
checkpoints of one run differ at their end."""

_LONGEST_ERROR = 2000

_COLUMNS = 100

_GAP = 2  # spaces between columns


Cell = str | float | int | None
"""Of a table: a number that is no whole one is shown with four decimals, None as a dash."""


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column names the row, all others hold numbers or short words."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Section:
    """A title with lines and tables below it."""

    title: str
    blocks: Sequence[str | Table]


def show(sections: Sequence[Section], *more: str) -> None:
    """Print a page as wide as the terminal, and lines below it."""
    width = shutil.get_terminal_size((_COLUMNS, 24)).columns
    page = (
        to_text(sections, width, styled=getattr(sys.stdout, "isatty", bool)()) if sections else ""
    )
    _write(sys.stdout, page + "".join(f"{printable(line, _LONGEST_ERROR)}\n" for line in more))


def tell(line: str) -> None:
    """Print a line of progress."""
    _write(sys.stderr, f"{printable(line)}\n")


def complain(message: str, code: int) -> int:
    """Print in one line what is wrong; returns the code."""
    # What a gate uses as well names the options of pytest.
    message = re.sub(r"--cep-(?=(store|baselines|data|role)\b)", "--", message)
    _write(sys.stderr, f"cepbench: {printable(message, _LONGEST_ERROR)}\n")
    return code


def write_and_show(
    arguments: Namespace,
    content: object,
    page: Iterable[Section],
    name: str,
) -> None:
    """Write the file, then show the page: results must not be lost to a closed terminal.

    arguments: of the command, with the folder of the file and the command line.
    content: written as JSON with the fields of its class, such as a study or a diagnosis.
    page: of it.
    name: of the file, without suffix.
    Raises WriteError.
    """
    import msgspec

    from pytest_cepbench.files import keep_out_of_git
    from pytest_cepbench.report.writers import write_reports

    out, command = arguments.out, arguments.command_line
    sections = list(page)
    document = {"schema": SCHEMA, "cepbench": __version__, "command": command}
    document |= msgspec.to_builtins(content)
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        written = write_reports(out / f"{name[:120]}.json", {".json": escape_json(text) + "\n"})
        keep_out_of_git(HOME, out)
    except (OSError, WriteError) as error:
        show(sections)
        raise WriteError(f"the results could not be written to {str(out)!r}: {error}") from error
    show(sections, *(f"written: {path}" for path in written))


def to_text(sections: Sequence[Section], width: int, *, styled: bool = False) -> str:
    """The page for a terminal of so many columns.

    Lines are wrapped; a table that is too wide goes on below itself, with its first column again.
    styled: with bold heads and coloured verdicts, as far as the terminal shows them.
    """
    lines: list[str] = []
    for section in sections:
        lines += [*_wrapped(section.title, width), ""]
        for block in section.blocks:
            if isinstance(block, Table):
                lines += [*_text_table(block, width, styled=styled), ""]
            else:
                lines += _wrapped(block, width)
        if lines[-1]:
            lines.append("")
    return "\n".join(lines) + "\n"


def short(name: str) -> str:
    """A name on one line, from its end, in at most LONGEST_NAME columns of a terminal."""
    from rich.cells import cell_len

    clean = printable(name, 10_000)
    if cell_len(clean) <= LONGEST_NAME:
        return clean
    end = clean[3 - LONGEST_NAME :]
    while cell_len(end) > LONGEST_NAME - 3:
        end = end[1:]
    return f"...{end}"


def rank_range(low: int, high: int) -> str:
    """The ranks that a model may have: 2, or 1-3."""
    return str(low) if low == high else f"{low}-{high}"


def percent(value: float | None) -> str:
    """A share of one in percent, with two decimals, or a dash."""
    return "-" if value is None else f"{100 * value:.2f}"


def coefficient(over: Correlation | None, decimals: int = 4) -> str:
    """A correlation with its interval, where it has one, or a dash."""
    if over is None:
        return "-"
    bounds = "" if over.low is None or over.high is None else f" [{over.low:.2f}, {over.high:.2f}]"
    return f"{over.value:.{decimals}f}{bounds}"


def _wrapped(line: str, width: int) -> list[str]:
    first, rest = ("  ", "    ") if line.startswith("  ") else ("", "")
    return textwrap.wrap(
        printable(line, 10_000),
        max(width, 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    ) or [""]


def _text_table(table: Table, width: int, *, styled: bool) -> list[str]:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    from pytest_cepbench.gate import PRESENTATIONS
    from pytest_cepbench.report.number_format import number

    colors = {str(verdict): own.color for verdict, own in PRESENTATIONS.items()}

    def shown(cell: Cell) -> str:
        return number(cell) if isinstance(cell, float | None) else short(str(cell))

    cells = [tuple(map(shown, row)) for row in (table.head, *table.rows)]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(table.head))]
    # The columns beside the first one, as many at a time as the width has room for.
    parts: list[list[int]] = [[]]
    used = widths[0]
    for i, needed in enumerate(widths[1:], 1):
        if parts[-1] and used + _GAP + needed > width:
            parts.append([])
            used = widths[0]
        parts[-1].append(i)
        used += _GAP + needed
    lines: list[Text] = []
    for place, columns in enumerate(parts):
        lines += [Text()] if place else []
        for at, row in enumerate(cells):
            line = Text()
            for i in (0, *columns):
                room = " " * (widths[i] - cell_len(row[i]))
                cell = f"{' ' * _GAP}{room}{row[i]}" if i else f"{row[i]}{room}"
                line.append(cell, colors.get(row[i], "") if at else "bold")
            lines.append(line)
    if not styled:
        return [line.plain.rstrip() for line in lines]
    stream = io.StringIO()
    Console(file=stream, force_terminal=True).print(*lines, sep="\n", soft_wrap=True)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _write(stream: TextIO, text: str) -> None:
    """Write what the terminal's encoding can, and '?' for the rest. Raises WriteError."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except (OSError, AttributeError) as error:  # a stream that was closed from the start is None
        why = getattr(error, "strerror", None) or "it is closed"
        # Python writes at its end what is left in the buffer; failing, it would end with 120.
        with suppress(OSError, AttributeError):
            stream.close()
        raise WriteError(f"the output could not be written: {why}") from error
