"""`cepbench arena`: models ranked by verdicts, another judge, verdicts to train a judge with."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS, WINNERS
from pytest_cepbench.cli.agree import percent
from pytest_cepbench.cli.arguments import suite_file
from pytest_cepbench.cli.judges import file_titles
from pytest_cepbench.cli.output import Section, Table, rank_range, show, tell, write_and_show
from pytest_cepbench.cli.session import open_store, run_servers
from pytest_cepbench.datasets.judged_battles import FILE_NAME
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts
from pytest_cepbench.errors import SpecError
from pytest_cepbench.evaluation.project_baselines import battle_baselines, suite_baselines
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.gate.baseline import dump_baseline
from pytest_cepbench.measures.base import JUDGE
from pytest_cepbench.measures.battle_measures import VERDICT_FAILURES
from pytest_cepbench.metrics.battles import TiePolicy
from pytest_cepbench.models.people import HumanJudge
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.ratings.folder import STUDY, read_ratings, read_votes
from pytest_cepbench.ratings.votes import shown_battles
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.store.maintenance import models_in
from pytest_cepbench.studies.arena import Leaderboard, make_leaderboard
from pytest_cepbench.studies.panels import SHAPES_PANEL, shapes_panel
from pytest_cepbench.studies.training_files import (
    TrainingBattle,
    panel_battles,
    people_battles,
    stored_battles,
    write_training,
)
from pytest_cepbench.suites import ModelPool, Suite, load_suite
from pytest_cepbench.suites.model_pool import describe_role
from pytest_cepbench.suites.role_assignment import RoleAssignment, RoleChoices, named_models

POLICIES: dict[TiePolicy, str] = {
    "fdt": "ties forced",
    "without_ties": "no ties",
    "ties_as_zero": "ties 0",
    "ties_as_half": "ties 1/2",
}
"""What tables call the policies for ties."""


def run(arguments: Namespace) -> int:
    """Compute, print and write a page; exit codes as in `main`."""
    titles, names = file_titles(arguments.verdicts), ModelNames()
    boards = []
    for path, title in titles.items():
        if path.is_dir():
            ratings = read_ratings(path)
            votes = read_votes(ratings)
            for line in votes.remarks.lines:
                tell(line)
            shown = shown_battles(ratings, votes)
            battles = [replace(b, first=names(b.first), second=names(b.second)) for b in shown]
        else:
            battles = read_verdicts(path, names)
        board = make_leaderboard(title, battles, grouping=arguments.by)
        boards.append(board)
    page = [s for board in boards for s in board_page(board)]
    name = f"leaderboard-{'-'.join(titles.values())}"
    write_and_show(arguments, {"leaderboards": boards}, page, name)
    return 0


def _by_group(
    title: str, groups: Sequence[str], columns: Mapping[str, Sequence[str]], head: str = "group"
) -> Section:
    """A table with a row for each group of questions, and a column for each model."""
    rows = tuple(zip(groups, *columns.values(), strict=True))
    return Section(title, (Table((head, *columns), rows),))


def board_page(board: Leaderboard) -> Iterator[Section]:
    """A leaderboard as a page, its groups in a table of their own."""
    head = ("model", "rank", "rating", "+/-", "battles", *POLICIES.values())
    rows = tuple(
        (
            standing.model,
            rank_range(standing.rank_low, standing.rank_high),
            f"{standing.rating:+.0f}",
            f"{1.96 * standing.error:.0f}",
            f"{standing.battles:g}",
            *(percent(standing.win_rates[policy]) for policy in POLICIES),
        )
        for standing in board.standings
    )
    models = len(board.standings)
    title = (
        f"arena leaderboard of {board.name}: {models} models, {board.verdicts:,} verdicts on "
        f"{board.questions:,} questions"
    )
    yield Section(title, (*_board_notes(board), Table(head, rows)))
    if groups := list(board.standings[0].groups):
        yield _by_group(
            f"{board.name}: win rate with ties as 1/2, in percent",
            groups,
            {own.model: [percent(own.groups[g]) for g in groups] for own in board.standings},
        )
    if any(own.errors for own in board.standings):
        yield _by_group(
            f"{board.name}: answers in which people saw errors",
            list(ANSWER_ERRORS.values()),
            {
                own.model: [str(own.errors.get(kind, 0)) for kind in ANSWER_ERRORS]
                for own in board.standings
            },
            head="error",
        )


def _board_notes(board: Leaderboard) -> Iterator[str]:
    yield (
        "ratings: Elo points by an ordered logit, mean 0, with 95 % intervals "
        "clustered by question; ranks: by simultaneous 95 % intervals of all differences; win "
        "rates in percent"
    )
    yield (
        f"the judge favours the first answer by {board.order_effect:+.3f} logits (standard "
        f"error {board.order_error:.3f}), which the ratings allow for and the win rates do not"
    )
    yield f"ties: {100 * board.tie_share:.1f} % of the verdicts"
    if board.forfeits:
        yield f"forfeits: {board.forfeits} battles without an answer count in the win rates"
    if board.regularized:
        yield (
            "the battles alone leave some ratings without bound: half a battle of each model "
            "against an average one was added"
        )


def rejudge(arguments: Namespace) -> int:
    """Write the judge into the baselines of battles; exit codes as in `main`.

    Accepted answers score one half against themselves whoever judges, and need no verdict, so no
    battle is fought here and no verdict is missing. A judge that gave none yet, anywhere, may give
    none at all: it has to judge a candidate's answers first.
    """
    suite = load_suite(arguments.suite)
    role = judge_role(suite, arguments.judge)
    folder: Path = arguments.baselines / suite.name
    with open_store(arguments.store) as store, importable([suite.file]):
        bound = ModelPool(store).runner(role).bound
        battles = dict(battle_baselines(folder))
        if not battles:
            raise SpecError(f"{str(folder)!r} holds no baseline of battles")
        people = bound.load() if bound.named_in_baselines else None
        if isinstance(people, HumanJudge):
            given = bool(people.battles)
        else:
            given = bound.short_fingerprint in models_in(store.index.read, WINNERS)
        if not given:
            study = bound.spec.partition(":")[2].partition("?")[0]
            first = (
                f"let people judge, with `cepbench rate ask {study}`"
                if people is not None
                else f"let it judge, with `pytest {arguments.suite.parent} --model=CANDIDATE "
                f"--judge={bound.spec}` (which ends as incomparable and keeps the verdicts; the "
                "accepted model's own answers need none)"
            )
            raise SpecError(
                f"the judge {bound.spec} gave no verdict yet, and is not written into baselines "
                f"unasked: {first}, then try again"
            )
    judge = describe_role(bound, fixed=True)
    # Of answers against themselves no verdict was needed, so none is missing.
    for path, failures in suite_baselines(folder):
        if failures.identity.get("metric") == VERDICT_FAILURES:
            scores = {name: dict.fromkeys(part, 0.0) for name, part in failures.scores.items()}
            battles[path] = msgspec.structs.replace(failures, value=0.0, scores=scores)
    judged = {JUDGE: judge, "battles": str(suite.battle_rules)}
    changed = {
        path: msgspec.structs.replace(baseline, identity=baseline.identity | judged)
        for path, baseline in battles.items()
    }
    lines = (f"judge: {judge}, {suite.battle_rules}", *map(str, changed))
    page = [Section(f"Rejudge {suite.name}", lines)]
    if arguments.dry_run:
        show(page, "nothing written: --dry-run")
        return 0
    contents = {path: dump_baseline(baseline).encode() for path, baseline in changed.items()}
    replace_files(arguments.baselines, contents)
    show(page)
    return 0


def judge_role(suite: Suite, spec: str | None) -> RoleAssignment:
    """The judge of a suite of answers: the one that is named, else its own. Raises SpecError."""
    named = named_models(suite, RoleChoices(roles={} if spec is None else {"judge": spec}))
    if suite.answer_plan is None or JUDGE not in named:
        raise SpecError(f"suite {suite.name!r} has no judge: name one with --judge=SPEC")
    return named[JUDGE]


_LOADER = "judged-battles"


def export_training(arguments: Namespace) -> int:
    """Write the files and say what they hold; exit codes as in `main`."""
    sources: list[str] = arguments.sources
    with open_store(arguments.store) as store, run_servers() as servers:
        pool = ModelPool(store, servers=lambda: servers)
        battles = (
            # Ids are marked with the name of their source where there are several.
            replace(battle, id=f"{Path(source).stem}/{battle.id}") if len(sources) > 1 else battle
            for source in sources
            for battle in _battles(source, pool)
        )
        prompt = JUDGE_PROMPTS[arguments.prompt]
        export = write_training(arguments.out, battles, arguments.format, prompt, arguments.unseen)
    counts = ", ".join(f"{count:,} {split}" for split, count in export.battles.items())
    verdicts = ", ".join(f"{count:,} {name}" for name, count in sorted(export.verdicts.items()))
    rows = tuple((name, f"{count:,}") for name, count in export.rows.items())
    lines = (f"battles: {counts}", f"verdicts: {verdicts}", f"images: {export.images:,}")
    page = Section("battles with verdicts", (*lines, Table(("file", "rows"), rows)))
    show([page], f"written: {arguments.out}")
    return 0


def _battles(source: str, pool: ModelPool) -> Iterator[TrainingBattle]:
    """The battles of one source. Raises kinds of CepError for what is none."""
    path = Path(source)
    if source == SHAPES_PANEL and not path.exists():
        return panel_battles(shapes_panel(pool), pool.store)
    if (path / STUDY).is_file():
        return people_battles(path)
    if path.suffix == ".jsonl" or (path.is_dir() and (path / FILE_NAME).is_file()):
        return stored_battles(path)
    suite = load_suite(suite_file(path))
    if suite.table.data.loader != _LOADER:
        raise SpecError(
            f"suite {suite.name!r} has no battles with stored verdicts: its loader is "
            f"{suite.table.data.loader!r}, and {_LOADER!r} is expected. Have people judge its "
            f"answers (`cepbench rate ask {source} --kind pair`) and give the folder of their votes"
        )
    return stored_battles(suite.folder / (suite.table.data.path or "."))
