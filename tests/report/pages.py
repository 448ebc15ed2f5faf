"""Reading an HTML page strictly: every tag closed, nothing from outside, no script but its own."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from hashlib import sha256
from html.parser import HTMLParser

VOID = {"meta", "img", "line", "polyline", "circle", "rect", "br"}


@dataclass
class Page:
    """What a page consists of."""

    tags: set[str] = field(default_factory=set)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Everything that a reader sees."""
        return " ".join(self.texts)

    def values(self, name: str) -> list[str]:
        """Values of an attribute, in order."""
        return [value for _, attribute, value in self.attributes if attribute == name]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.add(tag)
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.add(tag)
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.page.texts.append(data)


def read_page(html: str) -> Page:
    """Parse a page; fails when tags do not close in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader.page


def assert_self_contained(html: str) -> None:
    """No script but the page's own, no handler, no address outside: images are inlined."""
    page = read_page(html)
    assert not page.tags & {"link", "iframe", "object", "embed", "base", "form"}
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name == "href":
            assert value.startswith("#"), (tag, value)
        if name == "src":
            assert value.startswith("data:image/png;base64,")
    assert html.count("<script") <= 1
    script = html.partition("<script>")[2].partition("</script>")[0]
    if script:
        digest = base64.b64encode(sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'\"" in html
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
