"""A real browser for pages: Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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

    All details are opened first. Fails where the page is wider than the window.
    """
    tab = browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        bypass_csp=True,
    )
    tab.goto(page.as_uri())
    tab.add_script_tag(content=axe_core())
    found: list[str] = tab.evaluate(
        """async () => {
          for (const element of document.querySelectorAll("details")) element.open = true;
          const outcome = await window.axe.run(document, { runOnly: [
            "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice",
          ] });
          return outcome.violations.map((rule) => `${rule.id}: ${rule.nodes[0].html}`);
        }"""
    )
    root = "document.documentElement"
    assert tab.evaluate(f"() => {root}.scrollWidth - {root}.clientWidth") == 0
    tab.close()
    return found
