"""Reading pages strictly, every tag closed, and what GitHub is given; a real browser."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.report.pages import page_script

VOID = {"meta", "img", "br", "wbr", "input", "link"}
"""Elements of HTML that have no end. Those of SVG close themselves by `/>`, or a browser reads all
that follows as their content."""

_TAG = re.compile(r'<[a-z][a-z0-9]*(\s+[a-zA-Z][a-zA-Z0-9-]*(="[^"]*")?)*\s*/?>')
"""An opening tag: each attribute has its value in quotes, and none stands at another's end."""

_BLOCKS = {"details", "div", "dl", "figure", "h2", "h3", "p", "pre", "section", "table", "ul"}
"""Elements that end a paragraph."""


@dataclass
class Page:
    """What a page consists of."""

    tags: set[str] = field(default_factory=set)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Everything that a reader sees."""
        return " ".join(self.texts)

    def values(self, name: str) -> list[str]:
        """Values of an attribute, in order."""
        return [value for _, attribute, value in self.attributes if attribute == name]

    @property
    def pictures(self) -> list[str]:
        """The images inside of the page, as data URIs, in order."""
        return [value for tag, name, value in self.attributes if (tag, name) == ("image", "href")]

    @property
    def shown_pictures(self) -> list[str]:
        """Names of the images at the places where they are shown, in order."""
        return [value[1:] for tag, name, value in self.attributes if (tag, name) == ("use", "href")]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.open: list[str] = []
        self.within_a_word = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)
        self.within_a_word = tag == "wbr"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)
        assert "svg" in self.open, f"<{tag}/> does not close itself outside of SVG"

    def _begin(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        whole = self.get_starttag_text() or ""
        names = [name for name, _ in attrs]
        assert _TAG.fullmatch(whole), whole
        assert len(names) == len(set(names)), whole
        assert not (tag in _BLOCKS and "p" in self.open), whole
        assert tag != "image" or "svg" in self.open, whole
        self.page.tags.add(tag)
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.page.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            before = self.page.texts.pop() if self.within_a_word else ""
            self.page.texts.append(f"{before}{data}")
            self.within_a_word = False


def read_page(html: str) -> Page:
    """Parse a page; fails where a browser would have to guess what was meant.

    That is where tags do not close in order, values of attributes have no quotes, an attribute
    stands twice, or a paragraph holds what ends it.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader.page


def assert_self_contained(html: str) -> None:
    """No script but the page's own, no handler, no address: nothing is loaded from elsewhere."""
    page = read_page(html)
    assert not page.tags & {"link", "iframe", "object", "embed", "base", "form", "img"}
    assert page.scripts == [page_script()]
    ids = page.values("id")
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "style", (tag, value)
        if name == "src":
            assert tag == "audio"
            assert value.startswith("data:audio/flac;base64,")
        if name == "href" and tag == "image":
            assert value.startswith("data:image/webp;base64,")
        elif name == "href":
            assert value[0] == "#", (tag, value)
            assert value[1:] in ids, (tag, value)
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


# -- what GitHub reads: Markdown, and commands of a log -------------------------------------------

SUMMARY_TAGS = {
    "h2", "p", "ul", "li", "strong", "table", "thead", "tbody", "tr", "th", "td", "details",
    "summary",
}  # fmt: skip
"""The tags of a summary; everything else would have come from outside."""


def html_of(text: str) -> str:
    """Markdown as GitHub renders it; skips the test without markdown-it-py."""
    markdown_it = pytest.importorskip("markdown_it", reason="Markdown is read with markdown-it-py")
    parser: Any = markdown_it.MarkdownIt("gfm-like", {"html": True, "linkify": False})
    return str(parser.render(text))


def parse_command(line: str) -> tuple[dict[str, str], str]:
    """Properties and message of a command, unescaped as `ActionCommand` of the runner does it."""
    command = re.fullmatch(r"::(?:error|warning) ([^:]*)::(.*)", line)
    assert command is not None, line

    def unescape(text: str, escapes: dict[str, str]) -> str:
        for code, char in escapes.items():
            text = text.replace(code, char)
        return text

    of_property = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
    of_data = {"%0D": "\r", "%0A": "\n", "%25": "%"}
    pairs = (pair.partition("=") for pair in command[1].split(","))
    properties = {name: unescape(value, of_property) for name, _, value in pairs}
    return properties, unescape(command[2], of_data)


# -- a real browser: Chromium, driven by Playwright ------------------------------------------------


ROOT = Path(__file__).parents[2]


@contextmanager
def driven_chromium() -> Iterator[Any]:
    """The browser; skips the test where it or Playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright presses the keys")
    programs = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    program = next(filter(None, programs), None)
    if program is None:
        pytest.skip("no Chromium on PATH")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


def axe_core() -> str:
    """The source of axe-core, which finds violations of WCAG; skips the test without it.

    From the file that AXE_CORE names, or from node_modules (npm install axe-core).
    """
    installed = ROOT / "node_modules" / "axe-core" / "axe.min.js"
    path = Path(os.environ.get("AXE_CORE", installed))
    if not path.is_file():
        pytest.skip(f"no axe-core: neither AXE_CORE nor {installed} is a file")
    return path.read_text(encoding="utf-8")


def violations(browser: Any, page: Path, *, width: int = 1400, dark: bool = False) -> list[str]:
    """Rules of WCAG 2.2 AA, and best practices of axe-core, that a page violates.

    All details are opened first. Fails where the page is wider than the window, also where the
    test is skipped for want of axe-core.
    """
    tab = browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        bypass_csp=True,
    )
    tab.goto(page.as_uri())
    tab.evaluate("() => document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    root = "document.documentElement"
    assert tab.evaluate(f"() => {root}.scrollWidth - {root}.clientWidth") == 0
    tab.add_script_tag(content=axe_core())
    found: list[str] = tab.evaluate(
        """async () => {
          const outcome = await window.axe.run(document, { runOnly: [
            "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice",
          ] });
          return outcome.violations.map((rule) => `${rule.id}: ${rule.nodes[0].html}`);
        }"""
    )
    tab.close()
    return found
