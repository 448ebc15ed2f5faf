"""A judge that is asked for the verdicts of its card, which is kept beside the baselines."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.cli.judge_card_page import card_page
from pytest_cepbench.cli.output import NOT_DONE, complain, show, tell, write_and_show
from pytest_cepbench.cli.panel_files import (
    DATA,
    read_answer_folders,
    read_questions,
    votes_with_remarks,
)
from pytest_cepbench.cli.session import measured, read_count, read_seed
from pytest_cepbench.datasets.opening.verdict_files import (
    ModelNames,
    read_verdicts,
    write_verdicts,
)
from pytest_cepbench.errors import CepError, SpecError
from pytest_cepbench.files import read_text
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.report.totals import usage_line
from pytest_cepbench.report.writers import write_reports
from pytest_cepbench.store import Store
from pytest_cepbench.studies.judge_card import (
    AskedJudge,
    MeasuredJudge,
    measure_asked,
    require_models,
)
from pytest_cepbench.studies.panels import (
    SHAPES_PANEL,
    BattlePanel,
    choose_battles,
    opening_panel,
    ratings_panel,
    shapes_panel,
)
from pytest_cepbench.studies.verdict_collection import (
    AskedOrder,
    AskedVerdicts,
    collect_verdicts,
)
from pytest_cepbench.suites import ModelPool, RoleChoices
from pytest_cepbench.suites.judge_cards import JudgeIdentity, card_path, identify_judge, read_card
from pytest_cepbench.suites.model_options import assigned_role


@dataclass(frozen=True)
class _Request:
    """What is asked for.

    spec: of the judge.
    suite: people's verdicts; modules of `python:` judges may lie beside the file.
    limit: most battles; all where None.
    repeats: how often the judge is asked again.
    """

    spec: str
    suite: Path
    order: AskedOrder
    seed: int
    limit: int | None
    repeats: int


@dataclass(frozen=True)
class _Prepared:
    """A judge and the battles that it is to judge. seen: models of the battles."""

    request: _Request
    judge: RoleRunner
    panel: BattlePanel
    seen: list[str]


@dataclass(frozen=True)
class _AskedCard:
    """A card, and the verdicts that it is made of.

    identity: of the judge.
    """

    card: MeasuredJudge
    identity: JudgeIdentity
    panel: BattlePanel
    given: AskedVerdicts


def ask_judge(arguments: Namespace) -> int:
    """Ask the judge; print, write and keep its card; exit codes as in `main`."""
    outcome = measured(
        arguments.store,
        read=lambda: _read(arguments),
        prepare=lambda request, pool: _prepare(arguments, request, pool),
        measure=lambda prepared, _: _measure(prepared),
    )
    if isinstance(outcome, int):
        return outcome
    name = re.sub(r"[^A-Za-z0-9.+_-]+", "-", outcome.card.judge).strip("-.")[-80:] or "judge"
    page = list(card_page(outcome.card, arguments.command_line))
    content, file = {"card": outcome.card}, f"judge-card-{name}"
    code = write_and_show(content, page, arguments.command_line, arguments.out, file, what="card")
    if code:
        return code
    try:
        lines = _write_verdicts(arguments, name, outcome)
        if not arguments.dry_run:
            lines.append(_keep(arguments.baselines, arguments.out / f"{file}.json", outcome))
    except (CepError, OSError) as error:
        return complain(str(error), NOT_DONE)
    show([], *lines)
    return 0


def _read(arguments: Namespace) -> _Request:
    """Raises SpecError naming the option that is wrong."""
    if len(arguments.repeat) > 1:
        raise SpecError("--repeat is given several times: with --judge one number is expected")
    return _Request(
        spec=arguments.judge,
        suite=Path(arguments.on),
        order=arguments.order or "both",
        seed=read_seed(arguments.seed or "0"),
        limit=read_count("--samples", arguments.samples),
        repeats=read_count("--repeat", next(iter(arguments.repeat), None)) or 0,
    )


def _prepare(arguments: Namespace, request: _Request, pool: ModelPool) -> _Prepared:
    """The judge, bound, and its battles. Raises kinds of CepError for what is wrong with either."""
    judge = pool.runner(assigned_role(RoleChoices(roles={"judge": request.spec}), "judge"))
    names = ModelNames()
    if arguments.on == SHAPES_PANEL:
        panel = shapes_panel(pool, request.limit, request.seed)
    else:
        panel = _people_panel(arguments, request, pool.store, names)
    seen = [*map(names, arguments.seen)]
    require_models(seen, panel.people)  # now, not after thousands of calls
    return _Prepared(request, judge, panel, seen)


def _people_panel(
    arguments: Namespace, request: _Request, store: Store, names: ModelNames
) -> BattlePanel:
    path = Path(arguments.on)
    if path.is_dir():
        ratings = read_ratings(path)
        panel = ratings_panel(ratings, votes_with_remarks(ratings))
        for model in dict.fromkeys(m for b in panel.people for m in (b.first, b.second)):
            names(model)  # so that --seen may spell it otherwise
        return panel.limited(request.limit, request.seed)
    people = read_verdicts(path, names)
    answers = read_answer_folders(arguments.answers, names, people)
    questions = read_questions(arguments.data)
    if questions is None:
        raise SpecError(
            f"the questions of {str(path)!r} are needed: say where OpenING's lie with --data "
            f"{DATA}=FOLDER, and give the answers of each model with --answers FOLDER"
        )
    # What cannot be shown is counted over all battles, whichever are chosen.
    whole = opening_panel(
        path.stem, choose_battles(people, None, 0), questions, answers, store,
        partial=arguments.partial,
    )  # fmt: skip
    return whole.limited(request.limit, request.seed)


def _measure(prepared: _Prepared) -> _AskedCard:
    """Ask the judge. Raises what models and store raise, and as `measure_asked`."""
    request, judge, panel = prepared.request, prepared.judge, prepared.panel
    repeats = request.repeats
    if repeats and not judge.bound.seeded:
        tell("--repeat is passed over: this judge does not use its seed, so it says the same again")
        repeats = 0
    given = collect_verdicts(
        panel.people, panel.pair, judge, request.order, tell, seed=request.seed, repeats=repeats
    )
    tally = judge.tally
    usage = f"; {usage_line(tally.usage)}" if tally.usage.requests else ""
    tell(f"{tally.inputs} verdicts by the judge, {tally.hits} from the store{usage}")
    identity = identify_judge(judge.bound)
    asked = AskedJudge(identity, request.order, request.seed, given.failures, panel.left_out)
    card = measure_asked(request.spec, asked, panel, given, seen=prepared.seen)
    return _AskedCard(card, identity, panel, given)


def _write_verdicts(arguments: Namespace, name: str, asked: _AskedCard) -> list[str]:
    """Write the verdicts in OpenING's format; returns lines that name the files.

    Raises WriteError.
    """
    files: dict[str, Sequence[JudgedBattle]] = {f"{name}-verdicts.json": asked.given.verdicts}
    for number, repeat in enumerate(asked.given.repeats, 1):
        files[f"{name}-again-{number}.json"] = repeat
    if arguments.on == SHAPES_PANEL:
        files[f"{name}-truth.json"] = asked.panel.people
    for file, verdicts in files.items():
        write_verdicts(arguments.out / file, verdicts)
    return [f"verdicts: {arguments.out / file}" for file in files]


def _keep(baselines: Path, written: Path, asked: _AskedCard) -> str:
    """Keep the card beside the baselines; returns a line that says so.

    written: the card's file. Raises OSError, WriteError.
    """
    path = card_path(baselines, asked.identity)
    earlier = read_card(path)
    write_reports(path, {".json": read_text(written)})
    before = ""
    if earlier is not None:
        before = f" in the place of that of {earlier.date} over {earlier.card.battles:,} battles"
    return f"card: {path}{before}: runs with this judge show it; commit it with the baselines"
