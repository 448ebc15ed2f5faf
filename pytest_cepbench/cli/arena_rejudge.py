"""`cepbench arena rejudge`: accepted answers stay, and another judge compares with them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.cli.output import (
    Section,
    show,
)
from pytest_cepbench.cli.project_files import battle_baselines, verdict_failure_baselines
from pytest_cepbench.cli.session import open_store, suite_file
from pytest_cepbench.errors import SpecError
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.gate import Baseline
from pytest_cepbench.gate.baseline import dump_baseline
from pytest_cepbench.measures.base import JUDGE
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.people import HumanJudge
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.store import Store
from pytest_cepbench.store.maintenance import models_in
from pytest_cepbench.suites import ModelPool, load_suite
from pytest_cepbench.suites.model_options import RoleChoices
from pytest_cepbench.suites.model_pool import describe_fixed_role
from pytest_cepbench.suites.role_assignment import named_models


def rejudge(arguments: Namespace) -> int:
    """Write the judge into the baselines of battles; exit codes as in `main`.

    Accepted answers score one half against themselves whoever judges, and need no verdict, so no
    battle is fought here and no verdict is missing. A judge that gave none yet, anywhere, may give
    none at all: it has to judge a candidate's answers first.
    """
    suite = load_suite(suite_file(arguments.suite))
    choices = (
        RoleChoices() if arguments.judge is None else RoleChoices(roles={"judge": arguments.judge})
    )
    named = named_models(suite, choices)
    if suite.answer_plan is None or JUDGE not in named:
        raise SpecError(f"suite {suite.name!r} has no judge: name one with --judge=SPEC")
    folder: Path = arguments.baselines / suite.name
    with open_store(arguments.store) as store, importable([suite.file]):
        bound = ModelPool(store).runner(named[JUDGE]).bound
        battles = dict(battle_baselines(folder))
        if not battles:
            raise SpecError(f"{str(folder)!r} holds no baseline of battles")
        _require_verdicts(bound, store, arguments.suite)
    judge = describe_fixed_role(bound)
    judged = {JUDGE: judge, "battles": str(suite.battle_rules)}
    changed = {
        path: msgspec.structs.replace(baseline, identity=baseline.identity | judged)
        for path, baseline in battles.items()
    } | {
        path: msgspec.structs.replace(
            _without_failures(baseline), identity=baseline.identity | judged
        )
        for path, baseline in verdict_failure_baselines(folder)
    }
    lines = [f"judge: {judge}, {suite.battle_rules}", *map(str, changed)]
    if arguments.dry_run:
        show([Section(f"Rejudge {suite.name}", tuple(lines))], "nothing written: --dry-run")
        return 0
    replace_files(
        arguments.baselines,
        {path: dump_baseline(baseline).encode() for path, baseline in changed.items()},
    )
    show([Section(f"Rejudge {suite.name}", tuple(lines))])
    return 0


def _require_verdicts(judge: BoundRole, store: Store, suite: Path) -> None:
    """Raise SpecError for a judge of which the store has no verdict, and people without a vote."""
    people = judge.load() if judge.named_in_baselines else None
    if isinstance(people, HumanJudge):
        given = bool(people.battles)
    else:
        given = judge.short_fingerprint in models_in(store.index.read, WINNERS)
    if given:
        return
    study = judge.spec.partition(":")[2].partition("?")[0]
    first = (
        f"let people judge, with `cepbench rate ask {study}`"
        if people is not None
        else f"let it judge, with `pytest {suite} --model=CANDIDATE --judge={judge.spec}` (which "
        "ends as incomparable and keeps the verdicts; the accepted model's own answers need none)"
    )
    raise SpecError(
        f"the judge {judge.spec} gave no verdict yet, and is not written into baselines unasked: "
        f"{first}, then try again"
    )


def _without_failures(baseline: Baseline) -> Baseline:
    """The share of missing verdicts of answers against themselves: none was needed."""
    scores = {name: dict.fromkeys(part, 0.0) for name, part in baseline.scores.items()}
    return msgspec.structs.replace(baseline, value=0.0, scores=scores)
