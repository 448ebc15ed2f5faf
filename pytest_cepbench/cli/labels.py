"""`cepbench rate draw` and `labels`: battles that people label, and what they said."""

from __future__ import annotations

from argparse import Namespace

from pytest_cepbench.cli.arguments import ANSWER_ROLES
from pytest_cepbench.cli.output import tell
from pytest_cepbench.cli.session import measuring
from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.files import shown_path
from pytest_cepbench.ratings.folder import read_ratings, read_votes
from pytest_cepbench.ratings.summary import doubtful_annotators
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.studies.people_labels import (
    find_battles,
    take_labels,
    write_study,
)
from pytest_cepbench.suites import RoleChoices, load_prepared_suite


def draw(arguments: Namespace) -> int:
    """Answer the suite's questions, and draw battles to be labelled; no judge is asked.

    Raises SpecError where there are no accepted answers, and where the battles were drawn before.
    """
    annotators = arguments.annotators or ()
    if (arguments.ratings is None) != (not annotators):
        raise SpecError(
            "--ratings DIR and --annotators NAME,... belong together: who rates what is written"
        )
    specs = {role: getattr(arguments, role) for role in ANSWER_ROLES}
    roles = {role: spec for role, spec in specs.items() if spec is not None}
    choices = RoleChoices(arguments.model, arguments.role, roles)  # type: ignore[arg-type] # names
    data = dict(arguments.data)
    with measuring(arguments.store, arguments.suite) as (pool, begin):
        prepared = load_prepared_suite(arguments.suite, choices, data, arguments.samples)
        if prepared.suite.answer_plan is None:
            raise SuiteError(
                f"suite {prepared.suite.name!r} asks for chains: labels are of battles of answers"
            )
        begin()
        found = find_battles(prepared, prepared.run(pool, arguments.baselines), arguments.baselines)
        if found.judged:
            tell(
                f"{found.judged} of {len(found.battles)} battles have verdicts in the store, as "
                "where another model gave the same answers: so few have no say in the draw"
            )
        drawn = found.draw(arguments.battles)
        if arguments.ratings is not None:
            write_study(found, drawn, arguments.ratings, annotators, arguments.overlap)
        replace_files(drawn.path.parent, {drawn.path: drawn.dump().encode()})
    battles = drawn.drawn.values()
    tell(
        f"{counted(len(battles), 'battle')} of {len(found.battles)} drawn into "
        f"{shown_path(drawn.path)}: commit it before the judge is asked"
    )
    known = sum(own.battle.decided for own in battles)
    more = f"; {known} are decided without people: answers are equal or missing" if known else ""
    tell(f"{len(battles) - known} to be rated by people{more}")
    if arguments.ratings is not None:
        tell(f"their page: cepbench rate ask {arguments.ratings}")
    return 0


def import_ratings(arguments: Namespace) -> int:
    """Write what people said of drawn battles into the label files of a suite.

    Raises SpecError for a folder of something else, LabelError where nothing can be written.
    """
    ratings = read_ratings(arguments.ratings)
    if ratings.study.kind != "pair" or not ratings.study.suite:
        raise SpecError(f"{str(ratings.path)!r} holds no ratings of pairs of answers to a suite")
    votes = read_votes(ratings)
    doubts = {} if arguments.all_annotators else doubtful_annotators(ratings, votes)
    for name, why in doubts.items():
        tell(f"left out: {name}, {why}; --all-annotators counts everybody")
    for line in votes.remarks.lines:
        tell(line)
    taken = take_labels(ratings, votes, arguments.baselines, doubts)
    if taken.files:
        contents = {file.path: file.dump().encode() for file in taken.files}
        replace_files(taken.files[0].path.parent, contents)
    for file in taken.files:
        tell(f"labels written to {shown_path(file.path)}")
    if taken.rated > taken.known:
        tell(f"{taken.rated - taken.known} rated battles were not drawn, and are left out")
    tell(f"{counted(taken.known, 'label')} of {taken.people} people")
    return 0
