"""`cepbench agree judges` and `arena play`: a judge is asked for its card, and by models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.opening.verdict_files import read_verdicts, write_battles
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.store import Store
from tests.cli.conftest import Ended, Home
from tests.cli.reports import result_of, write_report
from tests.datasets.files import png, put_answer, put_questions, question
from tests.studies.toy import write_suite
from tests.suites.answers import ANSWERS, prepare

MODULE = "python:tests.cli.test_judge_card"

UIDS = [f"01010{number:02}" for number in range(1, 13)]

LONGER = f"{MODULE}:Longer"


class Longer:
    """Prefers the answer of more words; counts the battles that it was shown."""

    fingerprint = "longer/1"
    seeded = True
    shown = 0

    def judge(self, battles: Sequence[Any], seeds: Sequence[int]) -> list[str]:
        """A verdict each; some follow the seed."""
        Longer.shown += len(battles)
        return [self._verdict(b, seed) for b, seed in zip(battles, seeds, strict=True)]

    def _verdict(self, battle: Any, seed: int) -> str:
        first, second = (
            len(" ".join(piece for piece in answer if isinstance(piece, str)).split())
            for answer in (battle.first, battle.second)
        )
        if seed % 8 == 0:
            return "Tie(A)"
        return "A" if first > second else "B"


class First(Longer):
    """Says A whatever it is shown."""

    fingerprint = "first/1"

    def _verdict(self, battle: Any, seed: int) -> str:
        return "A"


class Interrupted(Longer):
    """Is as `Longer`, and is stopped after some battles, once."""

    stopped = False
    batch_size = 4

    def judge(self, battles: Sequence[Any], seeds: Sequence[int]) -> list[str]:
        """As above; the second call does not come back."""
        if Longer.shown and not type(self).stopped:
            type(self).stopped = True
            raise KeyboardInterrupt
        return super().judge(battles, seeds)


class Silent(Longer):
    """Says nothing."""

    fingerprint = "silent/1"

    def judge(self, battles: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
        """Failures."""
        from pytest_cepbench import Failure

        return [Failure("no-verdict", "hm") for _ in battles]


@pytest.fixture
def panel(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Questions, answers of two models, reference answers, and people's verdicts on them."""
    monkeypatch.setattr(Longer, "shown", 0)
    monkeypatch.setattr(Interrupted, "stopped", False)
    put_questions(home.path / "questions", [question(uid) for uid in UIDS])
    put_questions(home.path / "others", [question("0101099")])
    for place, uid in enumerate(UIDS):
        for name, words in (("Wordy", 30 + place), ("terse", 3 + place % 4)):
            folder = home.path / f"{name}_output"
            image = f"{uid}-o-0.jpg"
            steps: list[dict[str, str | None]] = [
                {"text": "word " * words, "image": image},
                {"text": f"{name} end", "image": None},
            ]
            put_answer(folder, uid, steps)
            (folder / image).write_bytes(png(40 + place))
    pairs = [("Wordy", "Terse"), ("Human", "Wordy"), ("Terse", "Human")]
    verdicts = ["A", "B", "Tie(A)", "Tie(B)"]
    people = [
        JudgedBattle(uid, *pairs[(i + k) % 3], verdicts[(i + k * k) % 4])  # type: ignore[arg-type]
        for i, uid in enumerate(UIDS)
        for k in range(2)
    ]
    write_battles(home.path / "people.json", people)
    return home


FILES = ["people.json", "--people=people.json"]

ON = ("--on=people.json", "--data=opening=questions", "--answers", "Wordy_output", "terse_output")


def ask(home: Home, *argv: str, judge: str = LONGER) -> Ended:
    """The command about people's battles."""
    return home.command("agree", "judges", f"--judge={judge}", *ON, *argv)


def card_of(home: Home, pattern: str = "judge-card-*.json") -> dict[str, Any]:
    """The only card of the folder."""
    (path,) = (home.path / ".cepbench/agreement").glob(pattern)
    card: dict[str, Any] = json.loads(path.read_text("utf-8"))["card"]
    return card


def test_a_judge_is_asked_in_both_orders(panel: Home) -> None:
    """The card has its identity; the verdicts are a file in the released format.

    The same command again, in the other design too, finds every verdict in the store. The card is
    kept beside the baselines, not in a dry run; a later one takes its place, and it says so.
    """
    ended = ask(panel, "--dry-run")
    card = card_of(panel)

    assert ended.code == 0, ended.err
    assert Longer.shown == 48
    assert "48 verdicts by the judge, 0 from the store" in ended.err
    assert card["judge"] == LONGER
    assert card["people"] == "people"
    assert card["asked"]["judge"]["fingerprint"]
    assert card["asked"]["judge"]["spec"] == LONGER
    assert card["card"]["battles"] == 24
    (file,) = (panel.path / ".cepbench/agreement").glob("*-verdicts.json")
    verdicts = read_verdicts(file)
    assert len(verdicts) == 48
    wordy = [b.winner for b in verdicts if b.first == "Wordy" and not b.winner.startswith("Tie")]
    assert wordy
    assert set(wordy) == {"A"}
    assert not (panel.path / "baselines").exists()
    first = ask(panel, "--samples=6")
    assert "0 verdicts by the judge, 24 from the store" in ask(panel, "--order=balanced").err
    (path,) = (panel.path / "baselines/judges").iterdir()
    again = ask(panel)

    assert "0 verdicts by the judge, 48 from the store" in again.err
    assert Longer.shown == 48
    assert f"card: baselines/judges/{path.name}: runs with this judge show it" in first.out
    assert "in the place of that of 20" in again.out
    assert json.loads(path.read_text("utf-8"))["card"]["card"]["battles"] == 24
    assert [*(panel.path / "baselines/judges").iterdir()] == [path]


def test_a_judge_that_says_always_the_same(panel: Home) -> None:
    """One line says that it sees nothing."""
    ended = ask(panel, judge=f"{MODULE}:First")
    card = card_of(panel)

    assert ended.code == 0
    assert "this judge leaned to the first answer in all 24 battles" in ended.flat
    assert card["sees_nothing"] is True
    assert card["card"]["order"] is None


def test_incomplete_answers_are_left_out_where_that_is_asked_for(panel: Home) -> None:
    """With --partial, and the page says how many; without, all of them are counted in a line.

    Folders without battles are said: all of a release can be given.
    """
    put_answer(panel.path / "Other_output", UIDS[0], [{"text": "x", "image": None}])
    (panel.path / "Wordy_output" / f"{UIDS[0]}.json").unlink()
    (panel.path / "Wordy_output" / f"{UIDS[1]}-o-0.jpg").unlink()
    refused = ask(panel)
    ended = ask(panel, "Other_output", "--partial")
    left_out = card_of(panel)["asked"]["left_out"]

    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "of 24 battles cannot be shown to a judge" in refused.err
    assert f"in which an answer is missing (first of 'Wordy' to '{UIDS[0]}')" in refused.err
    assert f"in which an image is missing (first of 'Wordy' to '{UIDS[1]}')" in refused.err
    assert "or leave those battles out with --partial" in refused.err
    assert ended.code == 0
    assert "Other_output is not used: no battle has the model 'Other'" in ended.err
    assert sum(left_out.values()) + card_of(panel)["card"]["battles"] == 24
    assert sum(left_out.values()) > 1


def test_asking_is_refused(panel: Home) -> None:
    """One line, before the judge is asked or where it gives no verdict; no card."""
    for argv, message in (
        (["--on=people.json"], "say where OpenING's lie with --data opening=FOLDER"),
        (["--on=people.json", "--data=mme=questions"], "unknown data set 'mme'"),
        (
            ["--on=people.json", "--data=opening=questions", "--answers", "Wordy_output"],
            "of models without a folder of answers (first 'Terse')",
        ),
        ([*ON, "Worthy=Wordy_output"], "unknown model 'Worthy'"),
        ([*ON, "terse=Wordy_output"], "are both of 'Terse'"),
        ([*ON, "--seen=GPT"], "no battle has the model 'GPT': Human, Terse, Wordy do"),
        ([], "--judge needs --on FILE"),
        (
            ["--on=people.json", "--data=opening=others", "--partial", *ON[2:]],
            "24 of 24 battles cannot be shown to a judge, 24 whose question is not there whole",
        ),
        (["people.json", *ON], "drop the file 'people.json'"),
        ([*ON, "--people=people.json"], "drop --people"),
        (["--on=shapes-arena", "--partial"], "brings questions and answers"),
        (["--judge=shapes:?blink=1", "--on=shapes-arena"], "blink"),
        (["--judge=none/at-all", *ON], "none/at-all"),
        ([f"--judge={MODULE}:Silent", *ON], "gave no verdict on 24 battles: no-verdict: hm"),
        ([*FILES, "--samples=3"], "--samples is of a judge that is asked"),
        ([*FILES, "--answers", "Wordy_output"], "--answers is of a judge that is asked"),
    ):
        judge = [] if argv[:2] == FILES else [f"--judge={LONGER}"]
        ended = panel.command("agree", "judges", *judge, *argv)
        ended.refused(message, lines=1, code=1 if "no-verdict" in message else 2)
        assert Longer.shown == 0
        assert not (panel.path / "baselines").exists()
        assert not (panel.path / ".cepbench/agreement").exists()


# -- `cepbench arena play`: each battle once, and models are ranked --------------------------------


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
    """It counts verdicts, those that the store has, and what the judge is shown. Battles of fewer
    rounds are among those of more, and were stored: further rounds ask about new ones alone.
    """
    ended = play(folders, "--plan", "--order=both")

    assert ended.code == 0, ended.err
    assert Longer.shown == 0
    assert "verdicts: 48, of which the store has 0" in ended.out
    assert "nothing was asked: --plan" in ended.out
    assert not (folders.path / ".cepbench/play").exists()
    play(folders, "--rounds=1")
    assert Longer.shown == len(UIDS)
    ended = play(folders, "--rounds=3")

    assert ended.code == 0, ended.err
    assert Longer.shown == 3 * len(UIDS)
    assert len(read_verdicts(folders.path / ".cepbench/play/verdicts.json")) == 3 * len(UIDS)
    assert "24 verdicts by the judge, 12 from the store" in ended.err
    assert "verdicts: 48, of which the store has 24" in play(folders, "--plan", "--order=both").out


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


def test_what_is_refused(folders: Home) -> None:
    """In one line, before anything is asked or written."""
    (folders.path / "empty").mkdir()
    write_answer(folders.path / "other_output", "0102001", "of another task", 80)
    for argv, models, says in (
        (("--rounds=4",), (), "expected 1 to 3 rounds: 3 models make 3 pairs; got 4"),
        (("--rounds=0",), (), "--rounds"),
        ((), ("long_output", "long_output"), "these answers battle as 'long' already"),
        ((), ("a=long_output", "b=long_output"), "b=long_output: these answers battle as 'a'"),
        ((), ("long_output",), "expected two or more different models, got ['long']"),
        ((), ("long_output", "nowhere"), "'nowhere': neither a folder of answers"),
        ((), ("long_output", "empty"), "empty"),
        ((), ("long_output", "other_output"), "holds no answer to these questions"),
        (("--reference=long",), (), "--reference 'long' is the name of a model already"),
    ):
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
