"""`cepbench study`: the study itself between a command line and three outputs."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pytest_cepbench import __version__
from pytest_cepbench.cli.asking import read_question
from pytest_cepbench.cli.documents import study_json
from pytest_cepbench.cli.home import HOME, import_from, open_store
from pytest_cepbench.cli.pages import study_page
from pytest_cepbench.cli.rendering import to_markdown
from pytest_cepbench.cli.terminal import INTERRUPTED, MISTAKE, NOT_DONE, complain, show, tell
from pytest_cepbench.conventions import keep_out_of_git
from pytest_cepbench.errors import CepError
from pytest_cepbench.report.document import write_reports
from pytest_cepbench.studies import Study, prepare, run_study
from pytest_cepbench.suites import NotConcernedError, Roster
from pytest_cepbench.suites.data import DataAbsentError


def run(given: Namespace, argv: Sequence[str]) -> int:
    """Run a study; exit codes as in `main`."""
    with ExitStack() as stack:
        try:
            question = read_question(given)
            roster = Roster(stack.enter_context(open_store(given.store)))
            import_from(question.suite)
            prepared = prepare(question, roster)
        except (CepError, DataAbsentError, NotConcernedError) as error:
            return complain(str(error), MISTAKE)
        except KeyboardInterrupt:
            return complain("interrupted before anything was measured", INTERRUPTED)
        try:
            study = run_study(prepared, roster, tell)
        except CepError as error:
            return complain(str(error), NOT_DONE)
        except KeyboardInterrupt:
            remedy = "what was computed is in the store: the same command goes on from there"
            return complain(f"interrupted; {remedy}", INTERRUPTED)
    return _show(study, given.out, shlex.join(["cepbench", *argv]))


def _show(study: Study, out: Path, command: str) -> int:
    """Write the files, then the page: what was measured must not be lost to a closed terminal."""
    page = study_page(study, command)
    documents = {
        ".json": study_json(study, __version__, command),
        ".md": to_markdown(page),
    }
    try:
        written = write_reports(out / f"{study.study}-{study.suite}.json", documents)
        keep_out_of_git(HOME, out)
    except OSError as error:
        written = []
        failure: str | None = f"the study could not be written to {str(out)!r}: {error.strerror}"
    else:
        failure = None
    show(page, *(f"written: {path}" for path in written))
    if failure is not None:
        return complain(failure, NOT_DONE)
    return NOT_DONE if study.errors else 0
