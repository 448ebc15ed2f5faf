"""Texts of the organizer: a small part of Markdown, and nothing of it is HTML."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.ratings.consent import to_html, write_texts
from pytest_cepbench.ratings.records import TASKS, Task


def test_the_part_of_markdown() -> None:
    """Headings, paragraphs, lists of both kinds, bold."""
    text = "# One\nA **b** & c\n\n- d\n  e\n- <f>\n\n1. g\n2) h\n\n## Two"
    assert str(to_html(text)) == (
        "<h1>One</h1>\n<p>A <b>b</b> &amp; c</p>\n<ul><li>d e</li><li>&lt;f&gt;</li></ul>\n"
        "<ol><li>g</li><li>h</li></ol>\n<h2>Two</h2>"
    )


@given(text=st.text(st.sampled_from('#-*1. \n<b>"&ax'), max_size=60) | st.text(max_size=40))
def test_no_text_becomes_markup(text: str) -> None:
    """Whatever it holds: the tags are those of the part, and without attributes."""
    html = str(to_html(text))
    left = html
    for tag in ("h1", "h2", "h3", "p", "b", "ul", "ol", "li"):
        left = left.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
    assert "<" not in left


@pytest.mark.parametrize("task", TASKS)
def test_texts_are_written_once(task: Task, tmp_path: Path) -> None:
    """What the organizer has edited stays."""
    write_texts(tmp_path, task)
    assert (tmp_path / "instructions.md").read_text().startswith("# ")
    (tmp_path / "consent.md").write_text("# Mine\n")
    write_texts(tmp_path, task)
    assert (tmp_path / "consent.md").read_text() == "# Mine\n"
