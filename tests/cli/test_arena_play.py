"""`cepbench arena play`: answers battle before a judge, each battle once, and models are ranked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.opening.verdict_files import read_verdicts
from pytest_cepbench.store import Store
from tests.cli.conftest import Ended, Home
from tests.cli.reports import result_of, write_report
from tests.cli.test_judge_card import LONGER, MODULE, UIDS, Interrupted, Longer
from tests.datasets.opening.files import png, put_answer, put_questions, question
from tests.studies.toy import write_suite
from tests.suites.answers import ANSWERS, prepare

WORDS = {"long": 30, "middle": 20, "short": 10}

SUITE = """
name = "battles"
version = 1

[data]
loader = "opening"

[answer]
steps = "free"

[prompts]

[arena]
order = "balanced"

[metrics.win_rate]
tolerance = 0.05
"""


@pytest.fixture
def folders(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Questions of two tasks, and answers of three models in OpenING's layout."""
    monkeypatch.setattr(Longer, "shown", 0)
    monkeypatch.setattr(Interrupted, "stopped", False)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    (home.path / "battles.toml").write_text(SUITE, "utf-8")
    put_questions(home.path / "questions", [question(uid) for uid in UIDS])
    for model, words in WORDS.items():
        for place, uid in enumerate(UIDS):
            write_answer(home.path / f"{model}_output", uid, f"{model} " * words, 40 + place)
    return home


def write_answer(folder: Path, uid: str, text: str, color: int) -> None:
    """An answer of one step with a picture."""
    image = f"{uid}-o-0.jpg"
    put_answer(folder, uid, [{"text": text, "image": image}])
    (folder / image).write_bytes(png(color))


def play(home: Home, *argv: str, judge: str = LONGER, models: tuple[str, ...] = ()) -> Ended:
    """The command on the folders of the three models."""
    answers = models or tuple(f"{name}_output" for name in WORDS)
    return home.command(
        *("arena", "play", *answers, "--suite=battles.toml", "--data=opening=questions"),
        *(f"--judge={judge}", *argv),
    )


def board(home: Home, out: str = ".cepbench/play") -> dict[str, Any]:
    """The leaderboard that was written."""
    document = json.loads((home.path / out / "leaderboard.json").read_text("utf-8"))
    (only,) = document["leaderboards"]
    return dict(only)


def test_the_models_are_ranked_by_the_judge(folders: Home) -> None:
    """Two battles of each question in one order each; files in the released format beside.

    Reference answers battle too, as a model of the name that is given.
    """
    ended = play(folders)
    assert ended.code == 0, ended.err
    standings = board(folders)["standings"]
    out = folders.path / ".cepbench/play"
    verdicts = read_verdicts(out / "verdicts.json")
    battles = json.loads((out / "battles.json").read_text("utf-8"))

    assert [row["model"] for row in standings] == ["long", "middle", "short"]
    assert len(battles) == len(verdicts) == Longer.shown == 2 * len(UIDS)
    assert [(b["data_id"], b["model_A"]["name"], b["model_B"]["name"]) for b in battles] == [
        (v.question, v.first, v.second) for v in verdicts
    ]
    assert len({(v.question, *sorted((v.first, v.second))) for v in verdicts}) == len(verdicts)
    assert {v.question for v in verdicts[: len(UIDS)]} == set(UIDS)  # a round, and then the next
    assert "3 of 3 pairs have met, all 3 models have fought in 1 of 1 tasks" in ended.err
    document = json.loads((out / "leaderboard.json").read_text("utf-8"))
    assert document["play"]["judge"] == LONGER
    ended = play(folders, "--reference=Human")
    assert ended.code == 0, ended.err
    assert {row["model"] for row in board(folders)["standings"]} == {*WORDS, "Human"}


def test_a_plan_asks_nothing(folders: Home) -> None:
    """It counts verdicts, those that the store has, and what the judge is shown."""
    ended = play(folders, "--plan", "--order=both")

    assert ended.code == 0, ended.err
    assert Longer.shown == 0
    assert "verdicts: 48, of which the store has 0" in ended.out
    assert "nothing was asked: --plan" in ended.out
    assert not (folders.path / ".cepbench/play").exists()
    play(folders)
    assert "verdicts: 48, of which the store has 24" in play(folders, "--plan", "--order=both").out


def test_further_rounds_ask_about_new_battles_alone(folders: Home) -> None:
    """Battles of fewer rounds are among those of more, and were stored."""
    play(folders, "--rounds=1")
    assert Longer.shown == len(UIDS)
    ended = play(folders, "--rounds=3")

    assert ended.code == 0, ended.err
    assert Longer.shown == 3 * len(UIDS)
    assert len(read_verdicts(folders.path / ".cepbench/play/verdicts.json")) == 3 * len(UIDS)
    assert "24 verdicts by the judge, 12 from the store" in ended.err


def test_an_interrupted_play_goes_on(folders: Home) -> None:
    """What was judged is not asked again, and nothing is ranked before the end.

    Nor is it by a judge that follows the order: its verdicts say nothing of the models.
    """
    ended = play(folders, judge=f"{MODULE}:First")
    ended.refused("the judge leaned to the first answer in all 24 battles", code=1)
    assert not (folders.path / ".cepbench/play").exists()
    Longer.shown = 0
    spec = f"{MODULE}:Interrupted"
    ended = play(folders, judge=spec)
    before = Longer.shown

    assert ended.code == 130
    assert 0 < before < 2 * len(UIDS)
    assert not (folders.path / ".cepbench/play/verdicts.json").exists()
    assert play(folders, judge=spec).code == 0
    assert Longer.shown == 2 * len(UIDS)


def test_missing_answers_are_forfeits(folders: Home) -> None:
    """Lost by the one and won by the other, in the win rates alone; both missing is no battle."""
    for uid in UIDS[:2]:
        for path in (folders.path / "long_output").glob(f"{uid}*"):
            path.unlink()
    ended = play(folders, "--rounds=3")
    first = board(folders)

    assert ended.code == 0, ended.err
    assert "long_output: 2 of 12 questions are not answered" in ended.err
    assert first["forfeits"] == 4
    assert first["standings"][0]["battles"] == 24
    assert first["standings"][0]["win_rates"]["ties_as_zero"] < 20.5 / 24
    assert "4 forfeits (one answer is missing)" in ended.out


@pytest.mark.parametrize(
    ("argv", "models", "says"),
    [
        (("--rounds=4",), (), "expected 1 to 3 rounds: 3 models make 3 pairs; got 4"),
        (("--rounds=0",), (), "--rounds"),
        ((), ("long_output", "long_output"), "these answers battle as 'long' already"),
        ((), ("a=long_output", "b=long_output"), "b=long_output: these answers battle as 'a'"),
        ((), ("long_output",), "expected two or more different models, got ['long']"),
        ((), ("long_output", "nowhere"), "'nowhere': neither a folder of answers"),
        ((), ("long_output", "empty"), "empty"),
        ((), ("long_output", "other_output"), "holds no answer to these questions"),
        (("--reference=long",), (), "--reference 'long' is the name of a model already"),
    ],
)
def test_what_is_refused(
    folders: Home, argv: tuple[str, ...], models: tuple[str, ...], says: str
) -> None:
    """In one line, before anything is asked or written."""
    (folders.path / "empty").mkdir()
    write_answer(folders.path / "other_output", "0102001", "of another task", 80)
    play(folders, *argv, models=models).refused(says)
    assert Longer.shown == 0
    assert not (folders.path / ".cepbench/play").exists()


def test_reports_of_runs_battle(home: Home) -> None:
    """Answers that runs of a suite left in the store, judged by the suite's own judge."""
    write_suite(home.path, ANSWERS)
    for name, model in (("worse", "shapes:?miss=0.6"), ("better", "shapes:?miss=0.1")):
        with Store(home.path / ".cepbench/store") as store:
            measured = prepare(home.path, store, model=model).measure()
        write_report(home.path / f"{name}.json", [result_of(measured)])
    command = ("arena", "play", "worse=worse.json", "better=better.json", "--suite=.", "--rounds=1")
    ended = home.command(*command)
    assert ended.code == 0, ended.err
    standings = board(home)["standings"]

    assert [row["model"] for row in standings] == ["better", "worse"]
    ended = home.command(*command, "--store=elsewhere")
    ended.refused("answers of the run of 'worse' are not in the store")
