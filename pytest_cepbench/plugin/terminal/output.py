"""Lines on pytest's terminal: as wide as it is, in its encoding, in color where pytest shows it.

Everything is written by pytest's own reporter, so that `--color`, `NO_COLOR`, other reporters and
files are served as pytest serves them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.escapes import visible
from pytest_cepbench.report.tables import Glyphs, Line, Span, glyphs_for, wrap


@dataclass(frozen=True)
class Output:
    """Where a section is written.

    reporter: pytest's terminal reporter.
    """

    reporter: Any

    @property
    def table_columns(self) -> int | None:
        """Columns that a table may take; None in a file, which has no edge, unless COLUMNS is set.

        A number that a log lacks cannot be had by making the window wider.
        """
        known = self.reporter.isatty or os.environ.get("COLUMNS")
        return self._writer.fullwidth if known else None

    @property
    def glyphs(self) -> Glyphs:
        """Those that the encoding of the output has."""
        return glyphs_for(self._encoding)

    def write(self, lines: Iterable[Line]) -> None:
        """Write lines as they are."""
        for line in lines:
            texts = (self._styled(span) for span in line)
            self.reporter.write_line("".join(texts))

    def write_sentences(self, sentences: Iterable[tuple[str, str]]) -> None:
        """Write (text, style) pairs, broken between words where the terminal ends.

        In a file, where pytest takes it to end.
        """
        for sentence, style in sentences:
            self.write((Span(line, style),) for line in self.wrap(sentence))

    def wrap(self, sentence: str, indent: str = "  ", *, shortened: bool = False) -> list[str]:
        """A line, broken between words where the terminal ends.

        indent: of what is continued.
        shortened: whether a word that no line has room for loses its middle.
        """
        ellipsis = self.glyphs.ellipsis if shortened else ""
        return wrap(visible(sentence), self._writer.fullwidth, indent, ellipsis)

    @property
    def _writer(self) -> Any:
        return self.reporter.config.get_terminal_writer()

    @property
    def _encoding(self) -> str:
        # pytest's writer has no public attribute for the file that it writes to.
        file = getattr(self._writer, "_file", None)
        return getattr(file, "encoding", None) or "utf-8"

    def _styled(self, span: Span) -> str:
        """A text that the file can take: pytest would write a whole line in escapes."""
        text = visible(span.text).encode(self._encoding, "backslashreplace").decode(self._encoding)
        markup: str = self._writer.markup(text, **dict.fromkeys(span.style.split(), True))
        return markup
