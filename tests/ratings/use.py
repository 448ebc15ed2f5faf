"""What people do on a page, as Playwright does it."""

from __future__ import annotations

import re
from typing import Any


def slot(page: Any) -> str:
    """The opaque name of what is shown; waits for it."""
    name: str = page.locator("main[data-slot]").get_attribute("data-slot", timeout=10_000)
    return name


def see(page: Any) -> None:
    """Look at what is shown for as long as an answer to it needs at least."""
    page.wait_for_timeout(300)


def press(page: Any, *keys: str) -> None:
    """Press keys, the last of which answers; waits until the answer is saved and the next shown."""
    before = slot(page)
    see(page)
    with page.expect_response(re.compile("/vote$")) as sent:
        for key in keys:
            page.keyboard.press(key)
    assert sent.value.status == 200
    page.wait_for_selector(f"main[data-slot]:not([data-slot='{before}'])")
    page.get_by_text("saved", exact=True).wait_for()
