"""`cepbench agree judges`: what is known of a judge's errors, from verdicts of people.

The judge's verdicts come from a file, or the judge is asked for them.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from pytest_cepbench.cli.arena import compare_two_judges
from pytest_cepbench.cli.asked_judge import ask_judge
from pytest_cepbench.cli.judge_card_page import card_page
from pytest_cepbench.cli.output import write_and_show
from pytest_cepbench.cli.panel_files import read_people
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts
from pytest_cepbench.errors import SpecError
from pytest_cepbench.studies.judge_card import MeasuredJudge, measure_judge
from pytest_cepbench.studies.panels import SHAPES_PANEL

_OF_ASKED = ("on", "order", "samples", "seed", "answers", "data", "partial", "dry_run")


def agree_judges(arguments: Namespace) -> int:
    """Measure, print and write a card, or the agreement of two; exit codes as in `main`."""
    if len(arguments.verdicts) == 2 and arguments.judge is None and arguments.people is None:
        _refuse_options_of_a_card(arguments)
        return compare_two_judges(arguments)
    _refuse_mixed(arguments)
    measured = None if arguments.judge is not None else _measure_files(arguments)
    if measured is None:
        return ask_judge(arguments)
    command: str = arguments.command_line
    page = list(card_page(measured, command))
    name = f"judge-card-{measured.judge}"[:120]
    return write_and_show({"card": measured}, page, command, arguments.out, name, what="card")


def _refuse_options_of_a_card(arguments: Namespace) -> None:
    """Raise SpecError for what says nothing of two judges."""
    for name in ("seen", "repeat", *_OF_ASKED):
        if getattr(arguments, name):
            raise SpecError(
                f"--{name.replace('_', '-')} is of a judge's card: give its verdicts with --people "
                "FILE, or the judge itself with --judge=SPEC --on FILE"
            )


def _refuse_mixed(arguments: Namespace) -> None:
    """Raise SpecError where the options are neither those of files nor those of a judge."""
    if arguments.judge is not None:
        _refuse_files(arguments)
        return
    if len(arguments.verdicts) != 1 or arguments.people is None:
        raise SpecError(
            "give a file of the judge's verdicts with --people FILE, the judge itself with "
            "--judge=SPEC --on FILE, or two files of verdicts"
        )
    if arguments.unseen:
        raise SpecError("--unseen is of two judges: a card has --seen MODEL")
    for name in _OF_ASKED:
        if getattr(arguments, name):
            raise SpecError(
                f"--{name.replace('_', '-')} is of a judge that is asked: add --judge=SPEC"
            )


def _refuse_files(arguments: Namespace) -> None:
    """Raise SpecError for options that a judge which is asked has no use for, or lacks."""
    if arguments.verdicts or arguments.people is not None:
        given = "--people" if arguments.people else f"the file {str(arguments.verdicts[0])!r}"
        raise SpecError(
            f"--judge is asked itself: drop {given}, and give people's verdicts with --on FILE"
        )
    if arguments.on is None:
        raise SpecError(
            "--judge needs --on FILE, verdicts of people on the battles that it is to judge, or "
            f"--on {SHAPES_PANEL}"
        )
    whole = arguments.on == SHAPES_PANEL or Path(arguments.on).is_dir()
    if whole and (arguments.answers or arguments.data or arguments.partial):
        raise SpecError(
            f"--on {arguments.on} brings questions and answers: drop --answers, --data, --partial"
        )


def _measure_files(arguments: Namespace) -> MeasuredJudge:
    """The card of verdicts in files. Raises SpecError, DatasetError."""
    repetitions = [Path(text) for text in arguments.repeat]
    (verdicts,) = arguments.verdicts
    paths: list[Path] = [verdicts, arguments.people, *repetitions]
    places = [path.resolve() for path in paths]
    for i, path in enumerate(paths):
        if places.index(places[i]) < i:
            raise SpecError(
                f"file {str(path)!r} is given twice: the judge's verdicts, people's (--people) and "
                "repetitions (--repeat) are files of their own"
            )
    names = ModelNames()
    judge = read_verdicts(verdicts, names)
    people = read_people(arguments.people, names)
    repeats = [read_verdicts(path, names) for path in repetitions]
    return measure_judge(
        (verdicts.stem, arguments.people.stem),
        judge,
        people,
        seen=[names(name) for name in arguments.seen],
        repeats=repeats,
    )
