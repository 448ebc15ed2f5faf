"""`cepbench arena`: models ranked by verdicts or in battles, another judge, training of judges."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS, WINNERS
from pytest_cepbench.cli.arguments import suite_file
from pytest_cepbench.cli.judges import file_titles, read_battles
from pytest_cepbench.cli.output import (
    HOME,
    Section,
    Table,
    percent,
    rank_range,
    show,
    tell,
    write_and_show,
)
from pytest_cepbench.cli.rate import rated_runs
from pytest_cepbench.cli.session import measuring, open_store, run_servers, verdicts_line
from pytest_cepbench.datasets.judged_battles import FILE_NAME
from pytest_cepbench.datasets.opening.answers import read_answers
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, write_battles
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.evaluation.project_baselines import suite_baselines
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.gate.baseline import dump_baseline
from pytest_cepbench.measures.base import JUDGE
from pytest_cepbench.measures.battle_measures import VERDICT_FAILURES
from pytest_cepbench.metrics.battles import TiePolicy
from pytest_cepbench.models.people import HumanJudge
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.option_values import split_name
from pytest_cepbench.ratings.folder import STUDY
from pytest_cepbench.ratings.votes import shown_battles
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.store import Store
from pytest_cepbench.store.maintenance import models_in
from pytest_cepbench.studies.arena import (
    Answers,
    Battles,
    Leaderboard,
    arrange,
    make_leaderboard,
    plan_of,
    recorded_answers,
    reference_answers,
    run_answers,
)
from pytest_cepbench.studies.judge_card import AskedOrder, collect_verdicts
from pytest_cepbench.studies.panels import SHAPES_PANEL, shapes_panel
from pytest_cepbench.studies.rated_items import seeds_of
from pytest_cepbench.studies.training_files import (
    TrainingBattle,
    panel_battles,
    people_battles,
    stored_battles,
    write_training,
)
from pytest_cepbench.suites import ModelPool, Suite, load_suite
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.model_pool import describe_role
from pytest_cepbench.suites.role_assignment import RoleAssignment, RoleChoices, named_models

POLICIES: dict[TiePolicy, str] = {
    "fdt": "ties forced",
    "without_ties": "no ties",
    "ties_as_zero": "ties 0",
    "ties_as_half": "ties 1/2",
}
"""What tables call the policies for ties."""

# -- leaderboard -----------------------------------------------------------------------------------


def run_leaderboard(arguments: Namespace) -> int:
    """Compute, print and write a page; exit codes as in `main`."""
    titles, names = file_titles(arguments.verdicts), ModelNames()
    boards = [
        make_leaderboard(title, read_battles(path, names, shown_battles))
        for path, title in titles.items()
    ]
    page = [s for board in boards for s in _board_page(board)]
    name = f"leaderboard-{'-'.join(titles.values())}"
    write_and_show(arguments, {"leaderboards": boards}, page, name)
    return 0


def _board_page(board: Leaderboard, lines: Sequence[str] = ()) -> Iterator[Section]:
    """A leaderboard as a page. lines: above the notes on it."""
    effect = f"{board.order_effect:+.3f} logits (standard error {board.order_error:.3f})"
    notes = [
        *lines,
        "ratings: Elo points by an ordered logit, mean 0, with 95 % intervals by question",
        "ranks: by simultaneous 95 % intervals of all differences; win rates in percent",
        f"order effect: {effect} for the first answer, for which ratings allow",
        f"ties: {100 * board.tie_share:.1f} % of the verdicts",
    ]
    if board.forfeits:
        notes.append(f"forfeits: {board.forfeits} battles without an answer count in the win rates")
    if board.regularized:
        notes.append(
            "the battles alone leave some ratings without bound: half a battle of each model "
            "against an average one was added"
        )
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
    head = ("model", "rank", "rating", "+/-", "battles", *POLICIES.values())
    title = (
        f"arena leaderboard of {board.name}: {len(board.standings)} models, {board.verdicts:,} "
        f"verdicts on {board.questions:,} questions"
    )
    yield Section(title, (*notes, Table(head, rows)))
    if any(own.errors for own in board.standings):
        rows = tuple(
            (words, *(str(own.errors.get(kind, 0)) for own in board.standings))
            for kind, words in ANSWER_ERRORS.items()
        )
        table = Table(("error", *(own.model for own in board.standings)), rows)
        yield Section(f"{board.name}: answers in which people saw errors", (table,))


# -- play ------------------------------------------------------------------------------------------


def run_play(arguments: Namespace) -> int:
    """Arrange, ask, rank, write; exit codes as in `main`.

    Raises kinds of CepError for what is wrong with the suite, the answers or the judge, and
    DatasetError where the verdicts can rank nobody.
    """
    file, seed, out = arguments.suite, arguments.seed, arguments.out
    with measuring(arguments.store, file) as (pool, begin):
        suite = load_suite(file)
        if suite.answer_plan is None:
            raise SuiteError(
                f"suite {suite.name!r} is of chains: battles are of interleaved answers"
            )
        judge = pool.runner(_judge_role(suite, arguments.judge))
        answers, samples = _entrants(arguments, suite, pool.store)
        # Orders that are asked about anew in doubt are for gates; here each model is first in half
        # of its battles, or in both orders of all.
        balanced = (arguments.order or suite.battle_rules.order) == "balanced"
        order: AskedOrder = "arranged" if balanced else "both"
        battles = arrange(
            answers, samples, pool.store, arguments.rounds, seed=seed, limit=arguments.samples
        )
        begin()
        lines, plan = list(_battle_lines(battles)), plan_of(battles, judge, order, seed)
        if arguments.plan:
            show([Section("plan of the battles", (*lines, plan, "nothing was asked: --plan"))])
            return 0
        for line in (*lines, plan):
            tell(line)
        given = collect_verdicts(
            battles.fought, battles.pair, judge, order, tell, seed=seed, remark=battles.coverage
        )
        tell(verdicts_line(judge))
        board = make_leaderboard(suite.name, given.verdicts, battles.forfeits)
    out.mkdir(parents=True, exist_ok=True)
    keep_out_of_git(HOME, out)
    write_battles(out / "verdicts.json", given.verdicts)
    write_battles(out / "battles.json", battles.arranged)
    facts = {
        "suite": suite.name,
        "judge": judge.bound.spec,
        "judge_fingerprint": judge.bound.fingerprint,
        "order": "balanced" if balanced else "both",
        "seed": seed,
        "battles": len(battles.arranged),
        "verdicts": len(given.verdicts),
        "forfeits": len(battles.forfeits),
        "equal": battles.equal,
        "empty": battles.empty,
        "judge_failures": dict(given.failures),
    }
    if given.failures:
        kinds = ", ".join(f"{kind}: {count}" for kind, count in given.failures.items())
        failures = sum(given.failures.values())
        lines.append(f"the judge gave no verdict {failures} times ({kinds}): left out")
    content = {"leaderboards": [board], "play": facts}
    write_and_show(arguments, content, _board_page(board, lines), "leaderboard")
    return 0


def _entrants(
    arguments: Namespace, suite: Suite, store: Store
) -> tuple[dict[str, Answers], list[Sample]]:
    """The answers of each model, in the order given, and the questions."""
    paths: dict[str, Path] = {}
    for text in arguments.answers:
        _, place = split_name(text)
        replay = place.startswith("replay:")
        path = Path(place.removeprefix("replay:").partition("?")[0] if replay else place)
        if not path.is_dir() and (replay or not path.is_file()):
            raise SpecError(
                f"{place!r}: neither a folder of answers in OpenING's layout nor a report of a run "
                "(--cep-report)"
            )
        paths[text] = path
    reports = [text for text, path in paths.items() if not path.is_dir()]
    rated = rated_runs("grades", suite, reports, Path()) if reports else ()
    runs = dict(zip(reports, rated, strict=True))
    records = [run.record for run in runs.values()]
    seeds = max((seeds_of(own) for own in records), default=1)
    dataset = load_data(suite, dict(arguments.data)).repeated(seeds)
    samples = [sample for sample in dataset.samples if sample.question]
    names = ModelNames()
    entrants: dict[str, Answers] = {}
    places: dict[Path, str] = {}
    for text in arguments.answers:
        at = paths[text].resolve()
        if text in runs:
            name, own = runs[text].name, run_answers(runs[text], samples, store)
        else:
            recorded = read_answers(paths[text])
            name = names(split_name(text)[0] or recorded.model)
            own = recorded_answers(recorded, samples, store)
            lacking = sum(sample.id not in recorded.answers for sample in samples)
            if lacking:
                tell(f"{paths[text]}: {lacking:,} of {len(samples):,} questions are not answered")
        if at in places:
            raise SpecError(f"{text}: these answers battle as {places[at]!r} already")
        if name in entrants:
            raise SpecError(f"two of the answers are of {name!r}: name them, as in NAME={text}")
        places[at] = name
        entrants[name] = own
    if arguments.reference is not None:
        if arguments.reference in entrants:
            raise SpecError(f"--reference {arguments.reference!r} is the name of a model already")
        entrants[arguments.reference] = reference_answers(samples, store)
    return entrants, samples


def _battle_lines(battles: Battles) -> Iterator[str]:
    models = {name for p in battles.arranged for name in (p.first, p.second)}
    yield (
        f"battles: {len(battles.arranged):,} of {len(models)} models on "
        f"{len({p.question for p in battles.arranged}):,} questions in "
        f"{len(set(battles.tasks.values()))} tasks; {battles.coverage()}"
    )
    if battles.forfeits or battles.empty or battles.equal:
        yield (
            f"without a judge: {len(battles.forfeits):,} forfeits (one answer is missing), "
            f"{battles.empty:,} in which both are, {battles.equal:,} of equal answers; the latter "
            "two are left out"
        )


# -- rejudge ---------------------------------------------------------------------------------------


def run_rejudge(arguments: Namespace) -> int:
    """Write the judge into the baselines of battles; exit codes as in `main`.

    Accepted answers score one half against themselves whoever judges, and need no verdict, so no
    battle is fought here and no verdict is missing. A judge that gave none yet, anywhere, may give
    none at all: it has to judge a candidate's answers first.
    """
    suite = load_suite(arguments.suite)
    role = _judge_role(suite, arguments.judge)
    folder: Path = arguments.baselines / suite.name
    with open_store(arguments.store) as store, importable([suite.file]):
        bound = ModelPool(store).runner(role).bound
        battles = {path: own for path, own in suite_baselines(folder) if own.answers}
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


def _judge_role(suite: Suite, spec: str | None) -> RoleAssignment:
    """The judge of a suite of answers: the one that is named, else its own. Raises SpecError."""
    named = named_models(suite, RoleChoices(roles={} if spec is None else {"judge": spec}))
    if suite.answer_plan is None or JUDGE not in named:
        raise SpecError(f"suite {suite.name!r} has no judge: name one with --judge=SPEC")
    return named[JUDGE]


# -- training --------------------------------------------------------------------------------------

_LOADER = "judged-battles"


def run_training(arguments: Namespace) -> int:
    """Write the files and say what they hold; exit codes as in `main`."""
    sources: list[str] = arguments.sources
    titles = file_titles([*map(Path, sources)])
    with open_store(arguments.store) as store, run_servers() as servers:
        pool = ModelPool(store, servers=lambda: servers)
        battles = (
            # Ids are marked with the name of their source where there are several.
            replace(battle, id=f"{titles[Path(source)]}/{battle.id}")
            if len(sources) > 1
            else battle
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
