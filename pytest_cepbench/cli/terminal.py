"""What a command says: results to one stream, progress and complaints to the other, an exit code."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from pytest_cepbench.cli.rendering import Section, to_text
from pytest_cepbench.report.text import printable

NOT_DONE, MISTAKE, INTERRUPTED = 1, 2, 130
"""Exit codes: something could not be measured, accepted or written; a mistake in what was asked;
interrupted."""

_LONGEST_ERROR = 2000

_COLUMNS = 100


def show(sections: Sequence[Section], *more: str) -> None:
    """Print a page as wide as the terminal, and lines below it."""
    width = shutil.get_terminal_size((_COLUMNS, 24)).columns
    page = to_text(sections, width) if sections else ""
    _say(sys.stdout, page + "".join(f"{printable(line, _LONGEST_ERROR)}\n" for line in more))


def show_document(text: str) -> None:
    """Print a text for other programs as it is; it holds no characters that a terminal obeys."""
    _say(sys.stdout, text)


def tell(line: str) -> None:
    """Say how far the command is."""
    _say(sys.stderr, f"{printable(line)}\n")


def complain(message: str, code: int) -> int:
    """Say in one line what is wrong; returns the code."""
    _say(sys.stderr, f"cepbench: {printable(message, _LONGEST_ERROR)}\n")
    return code


def _say(stream: TextIO, text: str) -> None:
    """Write what the terminal's encoding can, and question marks for the rest."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()
