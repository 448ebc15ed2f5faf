"""The pages, taken apart as far as the tests need: tables, fenced blocks, links, workflows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    *(page for page in sorted(ROOT.glob("*.md")) if page.name != "CHANGELOG.md"),
    *sorted(DOCS.glob("*.md")),
    *sorted(RESULTS.glob("*.md")),
    ROOT / "reference" / "README.md",
)

_BLOCK = re.compile(
    r"(?:<!-- run in: (?P<place>\w+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block. kind: its language. place: where it is to be run, if it is."""

    kind: str
    text: str
    place: str | None


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    matches = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["kind"], match["text"], match["place"]) for match in matches]


def workflow(file: Path) -> dict[str, Any]:
    """A workflow of GitHub's."""
    # YAML 1.1 reads a bare `on` as true; GitHub does not.
    text = file.read_text(encoding="utf-8")
    yaml: Any = import_module("yaml")  # ships no type information
    loaded: dict[str, Any] = yaml.safe_load(text.replace("\non:\n", "\n'on':\n"))
    return loaded


def tables(page: Path, heading: str) -> list[list[list[str]]]:
    """The tables below a heading, each as rows of cells, without their head."""
    text = page.read_text(encoding="utf-8")
    section = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, flags=re.MULTILINE)[0]
    blocks_of_rows: list[list[list[str]]] = []
    before = ""
    for line in section.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                blocks_of_rows.append([])
            blocks_of_rows[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        before = line
    return [rows[2:] for rows in blocks_of_rows]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def column(rows: list[list[str]], index: int = 0) -> list[str]:
    """The names in code marks of one column, in order."""
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[index])]
