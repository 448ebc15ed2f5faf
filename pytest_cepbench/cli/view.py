"""`cepbench view`: the history and the reports of a project in a browser, or as a static site."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from pytest_cepbench.cli.output import show, tell
from pytest_cepbench.errors import SpecError
from pytest_cepbench.option_values import HOST, bind
from pytest_cepbench.report.history.site import Site, serve, write_site
from pytest_cepbench.report.number_format import counted

_BUNDLE = "bundle"

_HISTORY = Path(".cepbench/history")


def run(arguments: Namespace) -> int:
    """Serve, or write the site; exit codes as in `main`."""
    words: list[str] = arguments.words
    if words[:1] == [_BUNDLE]:
        return _bundle(arguments.history or _HISTORY, words[1:])
    return _serve(words, arguments)


def _bundle(history: Path, targets: list[str]) -> int:
    if len(targets) != 1:
        raise SpecError(f"view bundle: one new folder is expected, got {len(targets)}")
    target = Path(targets[0])
    reports = write_site(history, target)
    show([], f"written: {target / 'index.html'}, with {counted(reports, 'report')}")
    return 0


def _serve(words: list[str], arguments: Namespace) -> int:
    if len(words) > 1:
        raise SpecError(f"view: one project folder is expected, got {len(words)}")
    history = arguments.history or Path(*words) / _HISTORY
    site = Site(history)
    site.index()  # a mistake is told here, not to the browser
    with bind(arguments.port) as listener:
        tell(f"serving {history} at http://{HOST}:{listener.getsockname()[1]}/ (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):  # the way to end it
            serve(site, listener)
    return 0
