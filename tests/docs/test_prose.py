"""The prose of the pages is as wide as the code: 100 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, RESULTS, ROOT

_WRITTEN = [page for page in PAGES if page.parent != RESULTS]  # those are made by scripts

WIDTH = 100

# Tables, headings, comments, pictures and code cannot be broken.
_UNBREAKABLE = re.compile(r"\s*([|#<]|!\[|\[.*\]: )|    ")


def too_wide(text: str) -> list[str]:
    """The lines of prose beyond the width, but for a word that is wider by itself."""
    prose = re.sub(r"^( *)(```|~~~).*?^\1\2$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        line
        for line in prose.splitlines()
        if len(line) > WIDTH and not _UNBREAKABLE.match(line) and not _is_one_word(line)
    ]


def _is_one_word(line: str) -> bool:
    """True where nothing can be broken off: inline code is a word."""
    words = re.sub(r"`[^`]*`", "code", line.strip().lstrip("-*0123456789. ")).split()
    return len(words) == 1


@pytest.mark.parametrize("page", [*_WRITTEN, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_prose_fits(page: Path) -> None:
    """A reviewer reads it in a diff beside another, as code."""
    assert too_wide(page.read_text(encoding="utf-8")) == []


def test_what_is_too_wide() -> None:
    """Prose and items of lists; not what cannot be broken."""
    wide = "word " * 30
    assert too_wide(f"{wide}\n") == [wide]
    assert too_wide(f"- {wide}\n") == [f"- {wide}"]
    for kept in (f"| {wide} |", f"## {wide}", f"    {wide}", f"```text\n{wide}\n```", "w" * 150):
        assert too_wide(f"{kept}\n") == []
