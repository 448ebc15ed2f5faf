"""`cepbench dataset arena`: questions of task templates, whose gold answers people approve."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence

from pytest_cepbench.cli.output import MISTAKE, NOT_DONE, Section, Table, complain, show
from pytest_cepbench.construction.arena_set import QUESTIONS, write_questions
from pytest_cepbench.construction.arena_templates import ArenaQuestion
from pytest_cepbench.datasets.opening.questions import TASKS
from pytest_cepbench.errors import CepError, WriteError


def run(arguments: Namespace) -> int:
    """Write out the questions; exit codes as in `main`."""
    try:
        questions = write_questions(arguments.templates, arguments.out)
    except WriteError as error:
        return complain(str(error), NOT_DONE)
    except CepError as error:
        return complain(str(error), MISTAKE)
    out, quoted = arguments.out, shlex.quote(str(arguments.out))
    show(
        [_page(questions)],
        f"written: {out / QUESTIONS}",
        f"people approve gold answers: cepbench dataset verify {quoted} --annotators NAME,NAME",
        f"then freeze it:              cepbench dataset freeze {quoted} --copy",
    )
    return 0


def _page(questions: Sequence[ArenaQuestion]) -> Section:
    counts = Counter(question.uid[:4] for question in questions)
    candidates: Counter[str] = Counter()
    for question in questions:
        candidates[question.uid[:4]] += len(question.candidates)
    rows = tuple(
        (task, TASKS[task], str(number), str(candidates[task]))
        for task, number in sorted(counts.items())
    )
    table = Table(("task", "name", "questions", "candidates"), rows)
    return Section(f"{len(questions)} questions of {len(rows)} tasks", (table,))
