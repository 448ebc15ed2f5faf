"""The history and the reports of a project as a site: served, or written into a folder.

Its first page is that of the history. Each run whose report is still there has a page in `runs/`.
While a run goes on, the served site has a page of what it has done so far in the same place.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

from markupsafe import Markup

from pytest_cepbench.errors import HistoryError, WriteError
from pytest_cepbench.report.history.file import (
    SUFFIX,
    History,
    HistoryRun,
    many_objects,
    read_history,
    report_digest,
)
from pytest_cepbench.report.history.page import history_page, running_page, running_part
from pytest_cepbench.report.history.running import RUN_ID, RUNNING, ListedRun, list_running
from pytest_cepbench.report.history.timeline import Selection, select_runs, timelines_of
from pytest_cepbench.report.page_folder import PAGE, page_file, page_file_names

RUNS = "runs"

_HERE = Markup("<!-- runs that have not ended -->")
"""Where the page that is kept has the part that changes; in texts its signs are escaped."""

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
        """The first page. Raises HistoryError where there is no run, and none goes on."""
        part = self.running("") or Markup()
        try:
            self._refresh()
        except HistoryError:
            if not self._list_running():
                raise
            return running_page(part, "", several=True)
        return self._index.replace(str(_HERE), part, 1)

    def running(self, run_id: str) -> Markup | None:
        """The part of a page about runs that have not ended: of the first page, or of a run's.

        run_id: of the run; empty for the first page. None where that run has ended.
        """
        entries = self._list_running()
        if not run_id:
            state = repr((_stamp(self._folder), [(e.run.run, e.state) for e in entries]))
            return running_part(entries, sha256(state.encode()).hexdigest()[:16], RUNNING)
        own = [entry for entry in entries if entry.run.run == run_id]
        return running_part(own, run_id, f"../{RUNNING}/{run_id}", whole=True) if own else None

    def running_page(self, name: str) -> str | None:
        """The page below `runs/` of a run that has not ended; None where it has."""
        part = self.running(name.removesuffix(".html")) if RUN_ID.match(name) else None
        return None if part is None else running_page(part, "../", several=False)

    def _list_running(self) -> list[ListedRun]:
        """Those that the history does not have: a run ends there before it removes its file."""
        entries = list_running(self._folder)
        if entries:
            with suppress(HistoryError):
                self._refresh()
        known = {run.run for run in self._history.runs} if entries else set()
        return [entry for entry in entries if entry.run.run not in known]

    def report(self, name: str) -> Path | None:
        """The file of a page below `runs/`; None where there is none."""
        run_id, _, suffix = name.partition(".")
        run = self._run(run_id)
        if run is None or suffix not in ("html", "json"):
            return None
        path = self._history.report_of(run)
        if path is None:
            return None
        page = path.with_suffix(f".{suffix}")
        return page if page.is_file() else None

    def page_file(self, run_id: str, name: str) -> bytes | None:
        """A file of a run's page in a folder; None where there is none, or it is another run's."""
        run = self._run(run_id)
        path = None if run is None else self._history.page_of(run)
        file = None if path is None else page_file(path.parent, name)
        if run is None or file is None:
            return None
        with file:
            content = file.read()
        replaced = name == PAGE and report_digest(content) != run.page_digest
        return None if replaced else content

    def _run(self, run_id: str) -> HistoryRun | None:
        """A run that has ended; None where the history has none of this id, or is gone."""
        with suppress(HistoryError):
            self._refresh()
        return next((run for run in self._history.runs if run.run == run_id), None)

    def _refresh(self) -> None:
        with self._lock:
            stamp = _stamp(self._folder)
            if stamp == self._stamp and self._index:
                return
            with many_objects():
                history = read_history(self._folder)
                self._index = site_index(history, _HERE)
            self._history, self._stamp = history, stamp


def site_index(history: History, running: Markup | None = None) -> str:
    """The first page. Raises HistoryError where there is no run.

    running: as of `history_page`.
    """
    runs = select_runs(history, Selection())
    timelines = timelines_of(runs, Selection())
    return history_page(history, runs, timelines, lambda run: _address(history, run), running)


def _address(history: History, run: HistoryRun) -> str:
    if not RUN_ID.fullmatch(run.run):  # lines may be written by anyone
        return ""
    page = history.page_of(run)
    if page is not None and page.name == PAGE:
        return f"{RUNS}/{run.run}/{PAGE}"
    path = history.report_of(run)
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
            raise WriteError(f"{target} is not empty: name a new folder")
        (target / RUNS).mkdir()
        copied = [run for run in history.runs if _copy_report(history, run, target / RUNS)]
        (target / "index.html").write_text(index, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{target} could not be written: {error.strerror or error}") from error
    return len(copied)


def _copy_report(history: History, run: HistoryRun, folder: Path) -> bool:
    if not _address(history, run):
        return False
    path, page = history.report_of(run), history.page_of(run)
    for suffix in (".html", ".json"):
        if path is not None and path.with_suffix(suffix).is_file():
            shutil.copyfile(path.with_suffix(suffix), folder / f"{run.run}{suffix}")
    if page is not None:
        _copy_page(page.parent, folder / run.run)
    return True


def _copy_page(source: Path, folder: Path) -> None:
    """Copy a page with the files beside it."""
    for name in page_file_names(source):
        file = page_file(source, name)
        if file is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with file, (folder / name).open("xb") as copy:
                shutil.copyfileobj(file, copy)
