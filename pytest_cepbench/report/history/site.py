"""The history and the reports of a project as a site: served, or written into a folder.

Its first page is that of the history. Each run whose report is still there has a page in `runs/`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from threading import Lock

from pytest_cepbench.errors import WriteError
from pytest_cepbench.report.history.file import SUFFIX, History, read_history
from pytest_cepbench.report.history.page import history_page
from pytest_cepbench.report.history.record import HistoryRun
from pytest_cepbench.report.history.timeline import Selection, select_runs, timelines_of

RUNS = "runs"

_RUN_ID = re.compile(r"[0-9a-f]{32}")  # lines may be written by anyone

Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file of a history."""


class Site:
    """The pages of a history, made anew when a run was added.

    folder: of the history.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()  # requests come in threads
        self._stamp: Stamp | None = None
        self._history = History(folder, ())
        self._index = ""

    def index(self) -> str:
        """The first page. Raises HistoryError where there is no run."""
        self._refresh()
        return self._index

    def report(self, name: str) -> Path | None:
        """The file of a page below `runs/`; None where there is none."""
        self._refresh()
        run_id, _, suffix = name.partition(".")
        run = next((run for run in self._history.runs if run.run == run_id), None)
        if run is None or suffix not in ("html", "json"):
            return None
        path = self._history.report_of(run)
        if path is None:
            return None
        page = path.with_suffix(f".{suffix}")
        return page if page.is_file() else None

    def _refresh(self) -> None:
        with self._lock:
            stamp = _stamp(self._folder)
            if stamp == self._stamp and self._index:
                return
            history = read_history(self._folder)
            self._index = site_index(history)
            self._history, self._stamp = history, stamp


def site_index(history: History) -> str:
    """The first page. Raises HistoryError where there is no run."""
    runs = select_runs(history, Selection())
    timelines = timelines_of(runs, Selection())
    return history_page(history, runs, timelines, lambda run: _address(history, run))


def _address(history: History, run: HistoryRun) -> str:
    path = history.report_of(run) if _RUN_ID.fullmatch(run.run) else None
    if path is None:
        return ""
    suffix = "html" if path.with_suffix(".html").is_file() else "json"
    return f"{RUNS}/{run.run}.{suffix}"


def _stamp(folder: Path) -> Stamp:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
        states = [(path.name, path.stat()) for path in paths]
    except OSError:  # `read_history` says what is wrong
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)


def write_site(folder: Path, target: Path) -> int:
    """Write all pages of a history into a new folder; returns the number of reports.

    Raises HistoryError where there is no run, WriteError where the folder is not empty or cannot be
    written.
    """
    history = read_history(folder)
    index = site_index(history)
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            msg = f"{target} is not empty: name a new folder"
            raise WriteError(msg)
        (target / RUNS).mkdir()
        copied = [run for run in history.runs if _copy_report(history, run, target / RUNS)]
        (target / "index.html").write_text(index, encoding="utf-8")
    except OSError as error:
        msg = f"{target} could not be written: {error.strerror or error}"
        raise WriteError(msg) from error
    return len(copied)


def _copy_report(history: History, run: HistoryRun, folder: Path) -> bool:
    path = history.report_of(run) if _address(history, run) else None
    if path is None:
        return False
    for suffix in (".html", ".json"):
        if path.with_suffix(suffix).is_file():
            shutil.copyfile(path.with_suffix(suffix), folder / f"{run.run}{suffix}")
    return True
