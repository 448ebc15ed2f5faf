"""A real browser for pages: Chromium loads a page from a real server, and a script looks at it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

JENKINS = "sandbox allow-same-origin; default-src 'none'; img-src 'self'; style-src 'self';"
"""Jenkins' default content policy for what builds have written."""

_SECONDS = 60

_BUDGETS = (20_000, 40_000, 80_000, 160_000)
"""Milliseconds of the browser's own time, attempt by attempt. It runs on while images are decoded
beside it: on a busy machine it may be over before the script is."""

_WRAPPER = """<!doctype html><title>wrapper</title>
<iframe id="page" src="{page}" width="{width}" height="900" style="border: 0"></iframe>
<pre id="outcome"></pre>
<script>
addEventListener("load", async () => {{
  const frame = document.getElementById("page").contentWindow;
  const look = async (window, document) => {{ {script} }};
  let outcome;
  try {{ outcome = {{ value: await look(frame, frame.document) }}; }}
  catch (error) {{ outcome = {{ error: String(error) }}; }}
  document.getElementById("outcome").textContent = JSON.stringify(outcome);
}});
</script>
"""


def chromium() -> str:
    """The browser's program; skips the test where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        program = shutil.which(name)
        if program is not None:
            return program
    pytest.skip("no Chromium on PATH")


@contextmanager
def driven_chromium() -> Iterator[Any]:
    """The browser, driven by Playwright; skips the test where one of them is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright presses the keys")
    program = chromium()
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


def look_at(
    page: Path, script: str, *, width: int = 1400, dark: bool = False, policy: str = ""
) -> Any:
    """What a script returns that looks at a page, as its `window` and `document`.

    page: a file; its folder is served.
    script: the body of an async function.
    width: of the window in pixels.
    policy: a content policy that the server sends with the page, beside the page's own.
    """
    wrapper = page.with_name("wrapper.html")
    wrapper.write_text(_WRAPPER.format(page=page.name, width=width, script=script))
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    arguments += ["--blink-settings=preferredColorScheme=0"] if dark else []
    with _served(page.parent, policy) as address:
        for budget in _BUDGETS:
            options = (*arguments, f"--virtual-time-budget={budget}")
            loaded = dumped((chromium(), *options, f"{address}/{wrapper.name}"))
            match = re.search(r'<pre id="outcome">(.+?)</pre>', loaded, re.DOTALL)
            if match is not None:
                break
        else:
            pytest.fail(f"the page's script has not ended: {loaded[-2000:]}")
    outcome = json.loads(unescape(match[1]))
    assert "error" not in outcome, outcome
    return outcome.get("value")


def dumped(command: Sequence[str]) -> str:
    """What the browser prints of a page; nothing where it hangs: all its processes are ended."""
    browser = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        return browser.communicate(timeout=_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.communicate()
        return ""


def violations(page: Path, *, width: int = 1400, dark: bool = False) -> list[tuple[str, str]]:
    """Rules of WCAG 2.2 AA, and best practices of axe-core, that a page violates; and where.

    All details are opened first. The page's own policy allows no other script: it is taken away.
    """
    head, policy, rest = page.read_text().partition('<meta http-equiv="Content-Security-Policy"')
    free = head + rest.partition(">")[2] if policy else head
    copy = page.with_name("free.html")
    copy.write_text(free.replace("</body>", f"<script>{axe_core()}</script></body>"))
    return [
        (rule, element)
        for rule, element in look_at(
            copy,
            """
            for (const element of document.querySelectorAll("details")) element.open = true;
            const outcome = await window.axe.run(document, { runOnly: [
              "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice",
            ] });
            return outcome.violations.map((rule) => [rule.id, rule.nodes[0].html]);
            """,
            width=width,
            dark=dark,
        )
    ]


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, policy: str, **options: Any) -> None:
        self.policy = policy
        super().__init__(*arguments, **options)

    def end_headers(self) -> None:
        if self.policy and "wrapper" not in self.path:
            self.send_header("Content-Security-Policy", self.policy)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: requests are no news."""


@contextmanager
def _served(folder: Path, policy: str) -> Iterator[str]:
    """The address of a server of a folder."""
    handler = partial(_Handler, directory=str(folder), policy=policy)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
