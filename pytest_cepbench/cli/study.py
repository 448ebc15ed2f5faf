"""`cepbench study`: the study itself between a command line and three outputs."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from pytest_cepbench import __version__
from pytest_cepbench.cli.asking import read_question
from pytest_cepbench.cli.documents import study_json
from pytest_cepbench.cli.home import HOME, import_from
from pytest_cepbench.cli.measuring import measured
from pytest_cepbench.cli.pages import study_page
from pytest_cepbench.cli.rendering import to_markdown
from pytest_cepbench.cli.terminal import NOT_DONE, complain, show, tell
from pytest_cepbench.conventions import keep_out_of_git
from pytest_cepbench.errors import WriteError
from pytest_cepbench.report.document import write_reports
from pytest_cepbench.studies import Prepared, Question, Study, prepare, run_study
from pytest_cepbench.suites import Roster


def run(given: Namespace, argv: Sequence[str]) -> int:
    """Run a study; exit codes as in `main`."""

    def get_ready(question: Question, roster: Roster) -> Prepared:
        import_from(question.suite)
        return prepare(question, roster)

    def play(prepared: Prepared, roster: Roster) -> Study:
        return run_study(prepared, roster, tell)

    study = measured(given.store, lambda: read_question(given), get_ready, play)
    if isinstance(study, int):
        return study
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
    except (OSError, WriteError) as error:
        written = []
        failure: str | None = f"the study could not be written to {str(out)!r}: {error}"
    else:
        failure = None
    show(page, *(f"written: {path}" for path in written))
    if failure is not None:
        return complain(failure, NOT_DONE)
    return NOT_DONE if study.errors else 0
