"""Questions and answers of battles, as options of a command name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_cepbench.cli.output import tell
from pytest_cepbench.cli.session import read_data
from pytest_cepbench.datasets.opening.answers import RecordedAnswers, read_answers
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SpecError, unknown_name
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.ratings.folder import Ratings, Votes, read_ratings, read_votes
from pytest_cepbench.ratings.votes import people_battles

DATA = "opening"
"""Name of OpenING's questions, as its suite has it."""


def read_people(path: Path, names: ModelNames) -> list[JudgedBattle]:
    """Verdicts of people: of a file, or the majority's of a ratings folder.

    What of the votes does not count is said. Raises DatasetError.
    """
    if not path.is_dir():
        return read_verdicts(path, names)
    ratings = read_ratings(path)
    return [
        replace(battle, first=names(battle.first), second=names(battle.second))
        for battle in people_battles(ratings, votes_with_remarks(ratings))
    ]


def votes_with_remarks(ratings: Ratings) -> Votes:
    """The votes of a study; a line tells of each kind that does not count. Raises DatasetError."""
    votes = read_votes(ratings)
    for line in votes.remarks.lines:
        tell(line)
    return votes


def read_questions(texts: Sequence[str]) -> Dataset | None:
    """OpenING's questions that are whole, of `opening=FOLDER`; None where no folder is given.

    Raises SpecError for another name, DatasetError for a folder that cannot be read.
    """
    folders = read_data(texts)
    if unknown := sorted(folders.keys() - {DATA}):
        raise SpecError(f"--data: {unknown_name('data set', unknown[0], [DATA])}")
    folder = folders.get(DATA)
    if isinstance(folder, str):
        raise SpecError(f"--data {DATA}={folder}: a folder is expected here")
    return None if folder is None else load_opening(folder, partial=True)


def read_answer_folders(
    texts: Iterable[str], names: ModelNames, battles: Iterable[JudgedBattle]
) -> dict[str, RecordedAnswers]:
    """Model -> its recorded answers, of `[MODEL=]FOLDER`.

    battles: that the answers are of; a folder of another model is passed over, and said.
    Raises SpecError for two folders of a model and for a model that is named and has no battle,
    DatasetError for a folder that cannot be read.
    """
    models = {model for battle in battles for model in (battle.first, battle.second)}
    answers: dict[str, RecordedAnswers] = {}
    for text in texts:
        given, _, folder = ("", "", text) if Path(text).exists() else text.rpartition("=")
        recorded = read_answers(Path(folder), partial=True)
        model = names(given or recorded.model)
        if model in answers:
            raise SpecError(
                f"--answers: {folder!r} and {str(answers[model].path)!r} are both of {model!r}"
            )
        if model in models:
            answers[model] = recorded
        elif given:
            raise SpecError(f"--answers {text!r}: {unknown_name('model', given, models)}")
        else:
            tell(f"{folder} is not used: no battle has the model {model!r}")
    return answers
