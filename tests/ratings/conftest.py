"""A browser for the pages, and studies that are served to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ratings.serving import Server, see, served
from tests.ratings.studies import make_study
from tests.report.pages import driven_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; its tests are skipped where one of them is missing.

    Of a module, not of the session: while Playwright runs, no other test could use asyncio.
    """
    with driven_chromium() as launched:
        yield launched


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens a person's page in a browser profile of its own, past the instructions.

    Takes an address and options of the profile. No script of a page may fail.
    """
    contexts = []
    errors: list[str] = []

    def start(address: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        page.wait_for_selector("[data-slot]")
        if page.locator("dialog[open]").count():
            page.keyboard.press("Escape")
        see(page)
        return page

    yield start
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Server]]:
    """A study of pairs and its server. Four people judge every item: one for each test."""
    folder = tmp_path_factory.mktemp("pair") / "study"
    make_study(folder, "pair", annotators=4, overlap=4)
    with served(folder) as server:
        yield folder, server
