"""`cepbench rate draw` and `labels`: what people said of drawn battles."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.gate.labels.label_file import LabelFile, read_label_file
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.summary import doubtful_annotators
from pytest_cepbench.store import Store
from tests.cli.conftest import Home
from tests.ratings.studies import make_study
from tests.ratings.voted import cast, side_vote
from tests.studies.toy import write_suite
from tests.suites.answers import ANSWERS, WORSE, prepare

FOLDER = "ratings/first"


@dataclass(frozen=True)
class Drawn:
    """A suite with accepted answers, whose battles against a worse model were drawn."""

    home: Home

    @property
    def path(self) -> Path:
        """The label file."""
        (path,) = (self.home.path / "labels" / "arena").glob("*.jsonl")
        return path

    @property
    def file(self) -> LabelFile:
        """Its content."""
        return read_label_file(self.path)

    @property
    def ratings(self) -> Ratings:
        """The ratings folder that was written with it."""
        return read_ratings(self.home.path / FOLDER)

    @property
    def items(self) -> list[str]:
        """What is asked, practice and checks aside."""
        return [name for name, item in self.ratings.items.items() if item.kind == "item"]

    def vote(self, annotator: str, first_wins: bool | None, items: Iterable[str] = ()) -> None:
        """Let a person vote on items, all where none is named; None for a tie."""
        verdict = "Tie(A)" if first_wins is None else "A" if first_wins else "B"
        own = [self.ratings.items[name] for name in items or self.items]
        cast(self.ratings, *(side_vote(item, annotator, verdict) for item in own))


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders that the tests copy: `accepted`, and `drawn` with all battles for two people."""
    root = tmp_path_factory.mktemp("templates")
    (root / "accepted").mkdir()
    write_suite(root / "accepted", ANSWERS)
    with Store(root / "accepted/.cepbench/store") as store:
        prepare(root / "accepted", store).accept()
    shutil.copytree(root / "accepted", root / "drawn")
    with contextlib.chdir(root / "drawn"):
        words = f"rate draw . --model {WORSE} --battles=20 --ratings {FOLDER} --overlap=2"
        assert main([*words.split(), "--annotators=ann,bob"]) == 0
    return root


@pytest.fixture
def accepted(home: Home, templates: Path) -> Home:
    """A suite of twenty questions whose answers were accepted."""
    shutil.copytree(templates / "accepted", home.path, dirs_exist_ok=True)
    return home


@pytest.fixture
def drawn(home: Home, templates: Path) -> Drawn:
    """The same with a draw of all battles."""
    shutil.copytree(templates / "drawn", home.path, dirs_exist_ok=True)
    return Drawn(home)


def test_a_draw_asks_no_judge(drawn: Drawn) -> None:
    """Its file names battles and probabilities; the store has answers and not one verdict."""
    file = drawn.file
    assert (file.draw.battles, file.draw.count, len(file.drawn)) == (20, 20, 20)
    assert {own.probability for own in file.drawn.values()} == {1.0}
    assert file.labels == {}
    with Store(drawn.home.path / ".cepbench/store") as store:
        suite = prepare(drawn.home.path, store, model=WORSE)
        suite.judge()
        assert suite.inputs("interleaver") == 0
        assert suite.inputs("judge") > 0


def test_a_draw_that_was_killed_goes_on(drawn: Drawn) -> None:
    """Between the study and the label file: the same command writes the file, and votes stay."""
    drawn.vote("ann", first_wins=True)
    drawn.path.unlink()
    words = f"rate draw . --model {WORSE} --battles=20 --ratings {FOLDER}".split()
    other = drawn.home.command(*words, "--overlap=2", "--annotators=ann,zed")
    less = drawn.home.command(*words, "--overlap=1", "--annotators=ann,bob")
    assert {other.code, less.code} == {1}
    assert "holds a study already" in other.err
    assert not list((drawn.home.path / "labels").rglob("*.jsonl"))
    again = drawn.home.command(*words, "--overlap=2", "--annotators=ann,bob")
    assert again.code == 0, again.err
    assert len(drawn.file.drawn) == 20
    assert len(read_votes(drawn.ratings).answers()) == len(drawn.items)


def test_what_people_see_names_no_model(drawn: Drawn) -> None:
    """The ratings folder has the drawn battles that are not decided; one file names models."""
    undecided = [own for own in drawn.file.drawn.values() if not own.battle.decided]
    ratings = drawn.ratings
    assert 0 < len(drawn.items) == len(undecided) < 20
    assert {item.kind for item in ratings.items.values()} == {"item", "practice", "attention"}
    assert ratings.study.suite == "arena"
    assert {source.model for source in ratings.sources} >= {WORSE}
    for path in ratings.path.rglob("*"):
        if path.is_file() and path.name != "sources.jsonl":
            assert WORSE.encode() not in path.read_bytes()


def test_votes_become_labels(drawn: Drawn) -> None:
    """The mean of the votes, for the candidate; another import changes nothing."""
    drawn.vote("ann", first_wins=True)
    drawn.vote("bob", first_wins=None)
    ended = drawn.home.command("rate", "labels", FOLDER, "--all-annotators")
    assert (ended.code, ended.out) == (0, "")
    assert "labels of 2 people" in ended.err
    labels = drawn.file.labels
    assert len(labels) == len(drawn.items)
    assert {(label.score, label.votes) for label in labels.values()} == {(0.75, 2)}
    before = drawn.path.read_bytes()
    assert drawn.home.command("rate", "labels", FOLDER, "--all-annotators").code == 0
    assert drawn.path.read_bytes() == before


def test_careless_raters_are_left_out_and_named(drawn: Drawn) -> None:
    """What they said goes, also where it was imported; where nobody is left, nothing is written."""
    drawn.vote("ann", first_wins=True)
    drawn.vote("bob", first_wins=False)
    drawn.home.command("rate", "labels", FOLDER, "--all-annotators")
    before = drawn.path.read_bytes()
    nobody = drawn.home.command("rate", "labels", FOLDER)
    assert drawn.path.read_bytes() == before
    checks = [item for item in drawn.ratings.items.values() if item.kind == "attention"]
    assert len(checks) > 1
    for item in checks:
        wrong = "B" if item.known["winner"] == "first" else "A"
        cast(drawn.ratings, side_vote(item, "bob", wrong, kind="attention"))
    ended = drawn.home.command("rate", "labels", FOLDER)

    assert (nobody.code, ended.code) == (1, 0)
    assert "left out: ann, agrees with nobody" in nobody.err
    assert "no annotator is left whose votes count" in nobody.err
    assert f"left out: bob, right on 0 of {len(checks)} items whose answer is known" in ended.err
    assert f"{len(drawn.items)} labels of 1 people" in ended.err
    assert {(label.score, label.votes) for label in drawn.file.labels.values()} == {(1.0, 1)}


@pytest.mark.slow
def test_seeds_of_a_question_are_drawn_together(home: Home) -> None:
    """Twenty questions with two seeds each make forty battles; a unit is a question."""
    home.path.joinpath("suite.toml").write_text(
        ANSWERS.replace("[answer]", "[answer]\nseeds = 2"), encoding="utf-8"
    )
    with Store(home.path / ".cepbench/store") as store:
        prepare(home.path, store, home.path.joinpath("suite.toml").read_text("utf-8")).accept()
    ended = home.command("rate", "draw", ".", "--model", WORSE, "--battles=20")
    assert ended.code == 0, ended.err
    (path,) = (home.path / "labels" / "arena").glob("*.jsonl")
    file = read_label_file(path)
    assert (file.draw.battles, file.draw.count, len(file.drawn)) == (40, 20, 40)


def test_a_draw_takes_the_other_roles_models(home: Home) -> None:
    """A worse generator beside the writer makes other answers, and another draw."""
    text = ANSWERS.replace('interleaver = "shapes:"', 'writer = "shapes:"\ngenerator = "shapes:"')
    home.path.joinpath("suite.toml").write_text(text, encoding="utf-8")
    with Store(home.path / ".cepbench/store") as store:
        prepare(home.path, store, text).accept()
    words = ["rate", "draw", ".", "--model=shapes:?swap=0.3", "--role=writer", "--battles=20"]
    assert home.command(*words).code == 0
    assert home.command(*words, f"--generator={WORSE}").code == 0
    files = [read_label_file(path) for path in (home.path / "labels" / "arena").glob("*.jsonl")]
    assert len({file.draw.population for file in files}) == 2
    assert home.command(*words, "--interleaver=shapes:").code == 2


def test_labels_decide_the_next_run(drawn: Drawn) -> None:
    """People find the worse model better, and the gate believes them; the report says how many."""
    drawn.vote("ann", first_wins=True)
    drawn.home.command("rate", "labels", FOLDER)
    with Store(drawn.home.path / ".cepbench/store") as store:
        suite = prepare(drawn.home.path, store, model=WORSE)
        judgement = suite.judge()
        part = suite.judge("swap-win_rate")
        assert suite.run.labelled(suite.cases["overall-win_rate"])
        assert not suite.run.labelled(suite.cases["overall-truth"])
    assert judgement.method == "people only, Gaffke"
    assert judgement.difference is not None
    assert judgement.difference > 0
    assert judgement.statements[0].startswith("people's labels decide: win rate ")
    assert (
        f"people labelled {len(drawn.items)} of 20 battles, {20 - len(drawn.items)} drawn ones are "
        "decided without them"
    ) in judgement.statements[0]
    assert part.method.startswith("people only")


def test_labels_of_another_model_do_not_decide(drawn: Drawn) -> None:
    """The same store and label files, other answers: counted, and the judge decides."""
    drawn.vote("ann", first_wins=True)
    drawn.home.command("rate", "labels", FOLDER)
    with Store(drawn.home.path / ".cepbench/store") as store:
        other = prepare(drawn.home.path, store, model="shapes:?miss=0.31")
        measurement = other.measure()
        assert measurement.labels is None
        assert "not one is used" in measurement.notes[-1]
        assert "people" not in other.judge().method


def test_a_draw_after_verdicts_is_refused(accepted: Home) -> None:
    """One line; the labels would be a second look at what disappointed."""
    with Store(accepted.path / ".cepbench/store") as store:
        prepare(accepted.path, store, model=WORSE).judge()
    ended = accepted.command("rate", "draw", ".", "--model", WORSE, "--battles=20")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert (
        "15 of 20 battles had verdicts of the judge before the draw, and at most 2 may" in ended.err
    )
    assert "verdicts on another model with the same answers count too" in ended.err
    assert not (accepted.path / "labels").exists()


@pytest.mark.parametrize(("judged", "shared"), [("shapes:?miss=0.35", 2), (WORSE, 3)])
def test_a_few_verdicts_on_another_model_do_not_refuse_a_draw(
    accepted: Home, judged: str, shared: int
) -> None:
    """A model that was judged gave some of the same answers: a tenth is noted, more is refused."""
    model = "shapes:?miss=0.1"
    with Store(accepted.path / ".cepbench/store") as store:
        prepare(accepted.path, store, model=judged).judge()
    ended = accepted.command("rate", "draw", ".", "--model", model, "--battles=20")
    if shared > 2:
        assert (ended.code, ended.err.count("\n")) == (1, 1)
        assert f"{shared} of 20 battles had verdicts of the judge before the draw" in ended.err
        return
    assert ended.code == 0
    assert f"{shared} of 20 battles have verdicts in the store, as where another" in ended.err
    with Store(accepted.path / ".cepbench/store") as store:
        measurement = prepare(accepted.path, store, model=model).measure()
        again = prepare(accepted.path, store, model=model).measure()
    note = f"{shared} of 20 battles had verdicts before labels were drawn"
    assert any(line.startswith(note) for line in measurement.notes)
    assert again.notes == measurement.notes
    assert not measurement.obstacles


@pytest.mark.parametrize("rated", [0, 3, 13])
def test_an_unfinished_rating_leaves_the_verdict_to_the_judge(drawn: Drawn, rated: int) -> None:
    """Of 15 battles that need people: the same numbers as without a draw, and a warning."""
    if rated:
        drawn.vote("ann", first_wins=True, items=drawn.items[:rated])
        assert drawn.home.command("rate", "labels", FOLDER).code == 0
    with Store(drawn.home.path / ".cepbench/store") as store:
        suite = prepare(drawn.home.path, store, model=WORSE)
        measurement, judgement = suite.measure(), suite.judge()
        drawn.path.unlink()
        alone = prepare(drawn.home.path, store, model=WORSE).judge()
    assert f"rating not finished: {rated} of 15 drawn battles that need" in measurement.warnings[-1]
    assert measurement.labels is None
    assert (judgement.verdict, judgement.low, judgement.high, judgement.method) == (
        alone.verdict, alone.low, alone.high, alone.method
    )  # fmt: skip


def test_a_missing_label_is_made_up_for_and_said(drawn: Drawn) -> None:
    """One of 15, in a category with two: the other counts twice, and bounds are people's."""
    drawn.vote("ann", first_wins=False, items=drawn.items[1:])
    drawn.home.command("rate", "labels", FOLDER)
    with Store(drawn.home.path / ".cepbench/store") as store:
        judgement = prepare(drawn.home.path, store, model=WORSE).judge()
    words = (
        "people labelled 14 of 20 battles, 5 drawn ones are decided without them, 1 have no label"
    )
    assert words in judgement.statements[0]
    assert judgement.difference == -0.375


def test_a_label_file_from_after_the_verdicts_is_refused(drawn: Drawn) -> None:
    """The draw's time is compared with those at which the store got its verdicts."""
    lines = drawn.path.read_text("utf-8").splitlines()
    late = json.loads(lines[0]) | {"drawn": "2999-01-01T00:00:00Z"}
    drawn.path.write_text("\n".join([json.dumps(late), *lines[1:]]), "utf-8")
    with Store(drawn.home.path / ".cepbench/store") as store:
        judgement = prepare(drawn.home.path, store, model=WORSE).judge()
    assert judgement.verdict.value == "incomparable"
    (reason,) = judgement.reasons
    assert "labels are drawn before the judge is asked" in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    "damage", ["half a line", "disagreeing", "probability 0", "by hand", "count", "suite"]
)
def test_damaged_labels_never_pass(drawn: Drawn, damage: str) -> None:
    """The case is incomparable, with the file and the line; the judge does not decide instead."""
    drawn.vote("ann", first_wins=True)
    drawn.home.command("rate", "labels", FOLDER)
    lines = drawn.path.read_text("utf-8").splitlines()
    if damage == "half a line":
        lines[-1] = lines[-1][:40]
    elif damage == "disagreeing":
        lines.append(json.dumps(json.loads(lines[-1]) | {"score": 0.0}))
    elif damage == "probability 0":
        lines[1] = json.dumps(json.loads(lines[1]) | {"probability": 0.0})
    elif damage == "by hand":
        del lines[1]
    else:
        wrong = {"count": 5} if damage == "count" else {"suite": "other"}
        lines[0] = json.dumps(json.loads(lines[0]) | wrong)
    drawn.path.write_text("\n".join(lines), "utf-8")
    with Store(drawn.home.path / ".cepbench/store") as store:
        judgement = prepare(drawn.home.path, store, model=WORSE).judge()
    assert judgement.verdict.value == "incomparable"
    assert drawn.path.name in judgement.reasons[0]
    ended = drawn.home.command("rate", "labels", FOLDER)
    readable = damage in ("by hand", "count", "suite")
    assert (ended.code, "Traceback" in ended.err) == (0 if readable else 1, False)


def test_a_suite_can_need_labels(drawn: Drawn) -> None:
    """Then a win rate without them is comparable with nothing, and the baseline says so."""
    needed = f'{ANSWERS}\n[gate]\nlabels = "needed"\n'
    with Store(drawn.home.path / ".cepbench/store") as store:
        before = prepare(drawn.home.path, store, needed, model=WORSE).judge()
        prepare(drawn.home.path, store, needed).accept()
        other = prepare(drawn.home.path, store, needed, model="shapes:?miss=0.31").judge()
        same = prepare(drawn.home.path, store, needed).judge()
    assert any(reason.startswith("bounds: baseline (none)") for reason in before.reasons)
    assert other.verdict.value == "incomparable"
    assert "this suite needs people's labels of these very battles" in other.reasons[0]
    assert same.verdict.value == "held"


def test_a_suite_can_ignore_labels(drawn: Drawn) -> None:
    """The judge decides alone, and nothing is said of labels."""
    drawn.vote("ann", first_wins=True)
    drawn.home.command("rate", "labels", FOLDER)
    ignored = f'{ANSWERS}\n[gate]\nlabels = "ignored"\n'
    with Store(drawn.home.path / ".cepbench/store") as store:
        suite = prepare(drawn.home.path, store, ignored, model=WORSE)
        assert suite.measure().labels is None
        assert not suite.run.labelled(suite.cases["overall-win_rate"])


def test_a_second_draw_is_refused(drawn: Drawn) -> None:
    """Of two draws the better one could be chosen."""
    ended = drawn.home.command("rate", "draw", ".", "--model", WORSE, "--battles=20")
    ended.refused("were drawn before", code=1, lines=1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--model=shapes:", "--battles=20"], "the model is the one that was accepted"),
        (["--model", WORSE, "--battles=21"], "21 battles are to be drawn, and there are 20"),
        (["--model", WORSE, "--battles=19"], "give at least 20"),
        (["--model", WORSE, "--battles=0"], "--battles"),
        (["--model", WORSE, "--ratings=r"], "--ratings DIR and --annotators NAME,... belong"),
        (["--model", WORSE, "--battles=20", "--baselines=x"], "no accepted answers to battle"),
    ],
)
def test_draws_that_cannot_be_made(accepted: Home, options: list[str], why: str) -> None:
    """Each with one line, and no file."""
    ended = accepted.command("rate", "draw", ".", *options)
    assert (ended.code in (1, 2), ended.err.count("\n")) == (True, 1)
    assert why in ended.err
    assert not (accepted.path / "labels").exists()


def test_a_suite_of_chains_has_no_battles(home: Home) -> None:
    """It is named."""
    write_suite(home.path)
    ended = home.command("rate", "draw", ".", "--model=shapes:")
    ended.refused("labels are of battles of answers")


def test_ratings_that_were_not_drawn_are_refused(drawn: Drawn) -> None:
    """People who rated first cannot make labels of it afterwards."""
    drawn.vote("ann", first_wins=True)
    drawn.path.unlink()
    ended = drawn.home.command("rate", "labels", FOLDER)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "not one of" in ended.err
    assert "`cepbench rate draw` chose before the judge was asked" in ended.err


def test_votes_of_fewer_people_do_not_replace_those_of_more(drawn: Drawn) -> None:
    """Labels of two people stay; labels of one give way to those of two."""
    drawn.vote("ann", first_wins=True)
    assert drawn.home.command("rate", "labels", FOLDER, "--all-annotators").code == 0
    drawn.vote("bob", first_wins=False)
    assert drawn.home.command("rate", "labels", FOLDER, "--all-annotators").code == 0
    assert {label.score for label in drawn.file.labels.values()} == {0.5}
    drawn.ratings.vote_path("bob").unlink()
    ended = drawn.home.command("rate", "labels", FOLDER, "--all-annotators")
    ended.refused("import the votes of all people together")


def test_ratings_of_no_suite_are_refused_before_anybody_is_judged(home: Home) -> None:
    """People who contradict one another on items of one's own: one line, which is not of them."""
    ratings = make_study(home.path / "mine", "pair", 20, suite="")
    items = [item for item in ratings.items.values() if item.kind == "item"]
    cast(ratings, *(side_vote(item, "a1", "A") for item in items))
    cast(ratings, *(side_vote(item, "a2", "B") for item in items))
    assert set(doubtful_annotators(ratings, read_votes(ratings))) == {"a1", "a2"}
    ended = home.command("rate", "labels", "mine")
    ended.refused("holds no ratings of pairs of answers to a suite", lines=1)


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_what_is_no_ratings_folder_is_refused(drawn: Drawn, folder: str) -> None:
    """One line."""
    ended = drawn.home.command("rate", "labels", folder)
    ended.refused("is no ratings folder", lines=1)
