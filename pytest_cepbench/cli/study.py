"""`cepbench study`: the study itself between a command line and three outputs."""

from __future__ import annotations

import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from pytest_cepbench import __version__
from pytest_cepbench.cli.asking import read_question
from pytest_cepbench.cli.documents import study_json
from pytest_cepbench.cli.pages import study_page
from pytest_cepbench.cli.rendering import to_markdown, to_text
from pytest_cepbench.conventions import keep_out_of_git
from pytest_cepbench.errors import CepError
from pytest_cepbench.report.document import write_reports
from pytest_cepbench.report.text import printable
from pytest_cepbench.store import Store
from pytest_cepbench.studies import Prepared, Question, Study, prepare, run_study
from pytest_cepbench.suites import NotConcernedError, Roster
from pytest_cepbench.suites.data import DataAbsentError

_LONGEST_ERROR = 2000

_HOME = Path(".cepbench")

_MISTAKE, _NOT_MEASURED, _INTERRUPTED = 2, 1, 130


def run(given: Namespace, argv: Sequence[str]) -> int:
    """Run a study; exit codes as in `main`."""
    with ExitStack() as stack:
        try:
            question = read_question(given)
            store = stack.enter_context(_open_store(given.store))
            roster = Roster(store)
            prepared = _prepare(question, roster)
        except (CepError, DataAbsentError, NotConcernedError) as error:
            return _complain(str(error), _MISTAKE)
        except KeyboardInterrupt:
            return _complain("interrupted before anything was measured", _INTERRUPTED)
        try:
            study = run_study(prepared, roster, _tell)
        except CepError as error:
            return _complain(str(error), _NOT_MEASURED)
        except KeyboardInterrupt:
            remedy = "what was computed is in the store: the same command goes on from there"
            return _complain(f"interrupted; {remedy}", _INTERRUPTED)
    return _show(study, given.out, shlex.join(["cepbench", *argv]))


def _prepare(question: Question, roster: Roster) -> Prepared:
    # As under pytest, modules of `python:` models and loaders lie here or beside the suite.
    for place in (str(question.suite.parent.absolute()), str(Path.cwd())):
        if place not in sys.path:
            sys.path.insert(0, place)
    return prepare(question, roster)


def _open_store(folder: Path) -> Store:
    store = Store(folder.absolute())
    keep_out_of_git(_HOME, folder)
    return store


def _show(study: Study, out: Path, command: str) -> int:
    """Write the files, then the page: what was measured must not be lost to a closed terminal."""
    page = study_page(study, command)
    documents = {
        ".json": study_json(study, __version__, command),
        ".md": to_markdown(page),
    }
    try:
        written = write_reports(out / f"{study.study}-{study.suite}.json", documents)
        keep_out_of_git(_HOME, out)
    except OSError as error:
        written = []
        failure: str | None = f"the study could not be written to {str(out)!r}: {error.strerror}"
    else:
        failure = None
    width = shutil.get_terminal_size((100, 24)).columns
    _say(sys.stdout, to_text(page, width))
    for path in written:
        _say(sys.stdout, f"written: {path}\n")
    if failure is not None:
        return _complain(failure, _NOT_MEASURED)
    return _NOT_MEASURED if study.errors else 0


def _tell(line: str) -> None:
    _say(sys.stderr, f"{printable(line)}\n")


def _complain(message: str, code: int) -> int:
    _say(sys.stderr, f"cepbench: {printable(message, _LONGEST_ERROR)}\n")
    return code


def _say(stream: TextIO, text: str) -> None:
    """Write what the terminal's encoding can, and question marks for the rest."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()
