"""`cepbench view`: the history and the reports of a project in a browser, or as a static site."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress

from pytest_cepbench.cli.output import show, tell
from pytest_cepbench.option_values import HOST, bind
from pytest_cepbench.report.history.site import Site, serve, write_site
from pytest_cepbench.report.number_format import counted


def run(arguments: Namespace) -> int:
    """Serve, or write the site; exit codes as in `main`."""
    history = arguments.history or arguments.project / ".cepbench/history"
    if arguments.out is not None:
        reports = write_site(history, arguments.out)
        show([], f"written: {arguments.out / 'index.html'}, with {counted(reports, 'report')}")
        return 0
    site = Site(history)
    site.index()  # a mistake is told here, not to the browser
    with bind(arguments.port) as listener:
        tell(f"serving {history} at http://{HOST}:{listener.getsockname()[1]}/ (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):  # the way to end it
            serve(site, listener)
    return 0
