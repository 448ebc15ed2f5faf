"""`cepbench arena play`: answers of several models battle, a judge decides, and they are ranked."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.cli.arena import board_page, judge_role
from pytest_cepbench.cli.arguments import suite_file
from pytest_cepbench.cli.output import HOME, Section, show, tell, write_and_show
from pytest_cepbench.cli.rated_runs import RatedSource, named_runs
from pytest_cepbench.cli.session import measuring, verdicts_line
from pytest_cepbench.datasets.opening.answers import read_answers
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, write_battles
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.files import keep_out_of_git, parse_json, read_text
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.option_values import split_name
from pytest_cepbench.report.writers import write_reports
from pytest_cepbench.store import Store
from pytest_cepbench.studies.arena import make_leaderboard
from pytest_cepbench.studies.arena_play import (
    Battles,
    Entrant,
    arrange,
    plan_play,
    play,
    recorded_entrant,
    reference_entrant,
    stored_entrant,
)
from pytest_cepbench.studies.judge_card import AskedOrder, AskedVerdicts
from pytest_cepbench.studies.rated_items import seeds_of
from pytest_cepbench.suites import Suite, load_suite
from pytest_cepbench.suites.data import load_data

PLAY = "play.json"
"""Says what the files beside it are of."""


def run(arguments: Namespace) -> int:
    """Arrange, ask, rank, write; exit codes as in `main`.

    Raises kinds of CepError for what is wrong with the suite, the answers or the judge, and
    DatasetError where the verdicts can rank nobody.
    """
    file, seed = suite_file(arguments.suite), arguments.seed
    with measuring(arguments.store, file) as (pool, begin):
        suite = load_suite(file)
        if suite.answer_plan is None:
            raise SuiteError(
                f"suite {suite.name!r} is of chains: battles are of interleaved answers"
            )
        judge = pool.runner(judge_role(suite, arguments.judge))
        entrants, samples = _entrants(arguments, suite, pool.store)
        # Orders that are asked about anew in doubt are for gates; here each model is first in half
        # of its battles, or in both orders of all.
        balanced = (arguments.order or suite.battle_rules.order) == "balanced"
        order: AskedOrder = "arranged" if balanced else "both"
        battles = arrange(
            entrants, samples, pool.store, arguments.rounds,
            seed=seed, limit=arguments.samples,
        )  # fmt: skip
        settings = {
            "suite": suite.name,
            "judge": judge.bound.spec,
            "judge_fingerprint": judge.bound.fingerprint,
            "order": "balanced" if balanced else "both",
            "seed": seed,
        }
        if not arguments.plan:
            _check_folder(arguments.out, settings)
        begin()
        lines = list(_battle_lines(battles))
        asked = plan_play(battles, judge, order, seed).sentence
        if arguments.plan:
            show([Section("plan of the battles", (*lines, asked, "nothing was asked: --plan"))])
            return 0
        for line in (*lines, asked):
            tell(line)
        given = play(battles, judge, order, tell, seed=seed)
        tell(verdicts_line(judge))
        board = make_leaderboard(
            arguments.name or suite.name,
            given.verdicts,
            forfeits=battles.forfeits,
        )
    facts = _written_facts(arguments.out, settings, battles, given)
    if given.failures:
        kinds = ", ".join(f"{kind}: {count}" for kind, count in given.failures.items())
        failures = sum(given.failures.values())
        lines.append(f"the judge gave no verdict {failures} times ({kinds}): left out")
    first, *others = board_page(board)
    page = [Section(first.title, (*lines, *first.blocks)), *others]
    content = {"leaderboards": [board], "play": facts}
    write_and_show(arguments, content, page, "leaderboard")
    return 0


def _written_facts(
    out: Path, settings: Mapping[str, Any], battles: Battles, given: AskedVerdicts
) -> dict[str, Any]:
    """Write verdicts and battles, and what they are of; returns the latter."""
    out.mkdir(parents=True, exist_ok=True)
    keep_out_of_git(HOME, out)
    write_battles(out / "verdicts.json", given.verdicts)
    write_battles(out / "battles.json", battles.arranged)
    facts = {
        **settings,
        "battles": len(battles.arranged),
        "verdicts": len(given.verdicts),
        "forfeits": len(battles.forfeits),
        "equal": battles.equal,
        "empty": battles.empty,
        "judge_failures": dict(given.failures),
    }
    write_reports(out / PLAY, {".json": json.dumps(facts, indent=2, sort_keys=True) + "\n"})
    return facts


def _check_folder(out: Path, settings: Mapping[str, Any]) -> None:
    """Raise SpecError for a folder with a play of another judge, suite, order or seed."""
    path = out / PLAY
    if not path.is_file():
        return
    try:
        known = parse_json(read_text(path))
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} could not be read: {error}; give another --out") from error
    own = known if isinstance(known, dict) else {}
    for name, value in settings.items():
        if own.get(name) != value:
            raise SpecError(
                f"{str(out)!r} holds a play with {name} {own.get(name)!r}, not {value!r}: give "
                "another folder with --out"
            )


def _entrants(
    arguments: Namespace, suite: Suite, store: Store
) -> tuple[list[Entrant], list[Sample]]:
    """The models, in the order given, and the questions."""
    given = [split_name(text) for text in arguments.answers]
    folders = [(name, _folder(text)) for name, text in given]
    reports = [
        text for text, (_, folder) in zip(arguments.answers, folders, strict=True) if folder is None
    ]
    runs = {}
    seeds = 1
    if reports:
        rated = named_runs("grades", suite.file, RatedSource(reports=reports))
        runs = dict(zip(reports, rated, strict=True))
        seeds = max(seeds_of({CaseKey.parse(run.record.case): run.record}) for run in rated)
    dataset = load_data(suite, dict(arguments.data)).repeated(seeds)
    samples = [sample for sample in dataset.samples if sample.question]
    names = ModelNames()
    entrants: dict[str, Entrant] = {}
    places: dict[Path, str] = {}
    for text, (name, folder) in zip(arguments.answers, folders, strict=True):
        if folder is None:
            entrant = stored_entrant(runs[text], samples, store)
        else:
            answers = read_answers(folder)
            entrant = recorded_entrant(names(name or answers.model), answers, samples, store)
            lacking = sum(sample.id not in answers.answers for sample in samples)
            if lacking:
                tell(f"{folder}: {lacking:,} of {len(samples):,} questions are not answered")
        if entrant.name in entrants:
            raise SpecError(
                f"two of the answers are of {entrant.name!r}: name them, as in NAME={text}"
            )
        place = (folder or Path(split_name(text)[1])).resolve()
        if place in places:
            raise SpecError(f"{text}: these answers battle as {places[place]!r} already")
        places[place] = entrant.name
        entrants[entrant.name] = entrant
    if arguments.reference is not None:
        if arguments.reference in entrants:
            raise SpecError(f"--reference {arguments.reference!r} is the name of a model already")
        entrants[arguments.reference] = reference_entrant(arguments.reference, samples, store)
    return list(entrants.values()), samples


def _folder(text: str) -> Path | None:
    """The folder of answers that is meant, as a path or a spec `replay:`; None for a report."""
    _, _, replayed = text.partition("replay:")
    path = Path(replayed.partition("?")[0]) if text.startswith("replay:") else Path(text)
    if path.is_dir():
        return path
    if text.startswith("replay:") or not path.is_file():
        raise SpecError(
            f"{text!r}: neither a folder of answers in OpenING's layout nor a report of a run "
            "(--cep-report)"
        )
    return None


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
