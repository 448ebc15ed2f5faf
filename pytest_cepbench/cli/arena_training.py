"""`cepbench arena training`: battles with verdicts as files that trainers of judges read."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pytest_cepbench.cli.judges import DATA, read_answer_folders, read_questions
from pytest_cepbench.cli.output import Section, Table, show, tell
from pytest_cepbench.cli.session import open_store, read_count, run_servers, suite_file
from pytest_cepbench.datasets.judged_battles import FILE_NAME
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts
from pytest_cepbench.datasets.sources.text_files import read_json_lines
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.ratings.folder import STUDY
from pytest_cepbench.studies.panels import (
    SHAPES_PANEL,
    BattlePanel,
    choose_battles,
    opening_panel,
    shapes_panel,
)
from pytest_cepbench.studies.training_files import (
    TrainingBattle,
    TrainingExport,
    panel_battles,
    people_battles,
    stored_battles,
    write_training,
)
from pytest_cepbench.suites import ModelPool, load_suite

_LOADER = "judged-battles"


def export_training(arguments: Namespace) -> int:
    """Write the files and say what they hold; exit codes as in `main`."""
    limit = read_count("--samples", arguments.samples)
    seed = arguments.seed
    if not (seed.isascii() and seed.isdecimal()):
        raise SpecError(f"--seed {seed!r}: a whole number from 0 on is expected")
    with open_store(arguments.store) as store, run_servers() as servers:
        pool = ModelPool(store, servers=lambda: servers)
        battles = (
            battle
            for source in arguments.sources
            for battle in _battles(source, arguments, pool, limit)
        )
        export = write_training(
            arguments.out,
            battles,
            arguments.format,
            JUDGE_PROMPTS[arguments.prompt],
            arguments.unseen,
        )
    show([_page(export)], f"written: {arguments.out}")
    return 0


def _battles(
    source: str, arguments: Namespace, pool: ModelPool, limit: int | None
) -> Iterator[TrainingBattle]:
    """The battles of one source, their ids marked with its name where there are several.

    Raises kinds of CepError for what is none.
    """
    path, found = Path(source), _open(source, arguments, pool, limit)
    several = len(arguments.sources) > 1
    for battle in found:
        yield replace(battle, id=f"{path.stem}/{battle.id}") if several else battle


def _open(
    source: str, arguments: Namespace, pool: ModelPool, limit: int | None
) -> Iterator[TrainingBattle]:
    path = Path(source)
    if source == SHAPES_PANEL and not path.exists():
        panel = shapes_panel(pool, limit, int(arguments.seed))
        return panel_battles(panel, pool.store)
    if (path / STUDY).is_file():
        return people_battles(path)
    if _holds_verdicts(path):
        return panel_battles(_people_panel(path, arguments, pool, limit), pool.store)
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


def _holds_verdicts(path: Path) -> bool:
    """Whether a file has verdicts in OpenING's format, and not the battles themselves."""
    if path.suffix == ".jsonl":
        return any("data_id" in line for _, line in islice(read_json_lines(path), 1))
    return path.suffix == ".json"


def _people_panel(
    path: Path, arguments: Namespace, pool: ModelPool, limit: int | None
) -> BattlePanel:
    names = ModelNames()
    people = choose_battles(read_verdicts(path, names), None, 0)
    questions = read_questions(arguments.data)
    if questions is None:
        raise SpecError(
            f"the questions of {str(path)!r} are needed: say where OpenING's lie with --data "
            f"{DATA}=FOLDER, and give the answers of each model with --answers FOLDER"
        )
    answers = read_answer_folders(arguments.answers, names, people)
    panel = opening_panel(
        path.stem, people, questions, answers, pool.store, partial=arguments.partial
    )
    for reason, count in panel.left_out.items():
        tell(f"{path}: {count:,} battles left out, {reason}")
    return panel.limited(limit, int(arguments.seed))


def _page(export: TrainingExport) -> Section:
    battles = ", ".join(f"{count:,} {split}" for split, count in export.battles.items())
    verdicts = ", ".join(f"{count:,} {name}" for name, count in sorted(export.verdicts.items()))
    rows = tuple((name, f"{count:,}") for name, count in export.rows.items())
    lines = (f"battles: {battles}", f"verdicts: {verdicts}", f"images: {export.images:,}")
    return Section("battles with verdicts", (*lines, Table(("file", "rows"), rows)))
