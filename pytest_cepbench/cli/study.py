"""`cepbench study`: the study itself between a command line and three outputs."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence

from pytest_cepbench._version import __version__
from pytest_cepbench.cli.documents import study_json, write_and_show
from pytest_cepbench.cli.home import import_from
from pytest_cepbench.cli.measurement_session import measured
from pytest_cepbench.cli.parsing import read_question
from pytest_cepbench.cli.study_report import study_page
from pytest_cepbench.cli.terminal import NOT_DONE, tell
from pytest_cepbench.studies import PreparedStudy, Study, StudySpec, prepare, run_study
from pytest_cepbench.suites import ModelPool


def run(given: Namespace, argv: Sequence[str]) -> int:
    """Run a study; exit codes as in `main`."""

    def get_ready(question: StudySpec, roster: ModelPool) -> PreparedStudy:
        import_from(question.suite)
        return prepare(question, roster)

    def play(prepared: PreparedStudy, roster: ModelPool) -> Study:
        return run_study(prepared, roster, tell)

    study = measured(given.store, lambda: read_question(given), get_ready, play)
    if isinstance(study, int):
        return study
    command = shlex.join(["cepbench", *argv])
    document = study_json(study, __version__, command)
    name = f"{study.study}-{study.suite}"
    code = write_and_show(study_page(study, command), document, given.out, name, what="study")
    return code or (NOT_DONE if study.errors else 0)
