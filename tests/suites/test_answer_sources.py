"""Answers by other tools, battles that people judge, and what is known of judges by their cards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import DatasetError, SpecError, SuiteNotApplicableError
from pytest_cepbench.gate import Judgement, Verdict, record_of
from pytest_cepbench.models.binding import BindContext, BoundRole, bind
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.ratings.folder import Ratings, read_ratings
from pytest_cepbench.store import Store
from pytest_cepbench.studies.rated_items import RatedItems, RatedRun, answer_items
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.judge_cards import card_path, identify_judge, read_card, remark_on_judge
from tests.datasets.files import png, put_answer, put_questions, question
from tests.plugin.project import SHAPES
from tests.ratings.studies import cast, side_vote, vote_all, write_rated
from tests.reference.shipped import copy_suite, gate
from tests.suites.answers import WORSE, MeasuredSuite, prepare

ROOT = Path(__file__).parents[2]

AGREEMENT = "overall-agreement"

MUTE = "python:tests.measures.test_answer_measures:Named?way=mute"


def judged(store: Store, spec: str, *names: str) -> dict[str, Judgement]:
    """The verdicts on some cases of the shipped suite with a judge under test."""
    choices = RoleChoices(roles={"judge": spec})
    prepared = load_prepared_suite(ROOT / "suites" / "judge" / "suite.toml", choices, {})
    pool = ModelPool(store)
    run, cases = prepared.run(pool), {case.id: case for case in prepared.cases}
    assert isinstance(run, AnswerRun)
    suite = MeasuredSuite(run, cases, pool, ROOT / "baselines")
    return {name: suite.judge(name) for name in names}


def test_a_judge_that_errs_more_often_regresses(store: Store) -> None:
    """One of five verdicts turned around: seen over all, though no single category proves it."""
    (verdict,) = judged(store, "shapes:?flip=0.2", AGREEMENT).values()
    assert verdict.verdict == "regressed"
    assert verdict.difference == pytest.approx(-0.2, abs=0.05)


@pytest.mark.slow
def test_a_judge_that_names_no_verdict_regresses(store: Store) -> None:
    """It agrees with nobody, in any category, and each verdict that is missing is counted."""
    cases = (AGREEMENT, "swap-agreement", "overall-judge_failures")
    verdicts = judged(store, MUTE, *cases)
    assert {name: str(own.verdict) for name, own in verdicts.items()} == dict.fromkeys(
        cases, "regressed"
    )


@pytest.mark.slow
def test_the_gate_is_run_as_a_user_runs_it(tmp_path: Path) -> None:
    """The exact judge holds in every case; one that errs does not."""
    place = copy_suite("judge", tmp_path)
    code, output, report = gate(place, "suites/judge", "--judge=shapes:")
    assert code == 0, output
    outcomes = [case["verdict"] for case in report["cases"] if case["metric"] == "agreement"]
    assert outcomes == ["held"] * 11
    assert gate(place, "suites/judge", "--judge=shapes:?flip=0.3").code == 1


@pytest.mark.slow
def test_a_panel_of_ones_own_takes_the_place_of_the_battles(tmp_path: Path) -> None:
    """With `--cep-data`, and baselines of its own."""
    place = copy_suite("judge", tmp_path)
    lines = (place / "suites/judge/battles.jsonl").read_text("utf-8").splitlines()
    (place / "mine").mkdir()
    (place / "mine" / "battles.jsonl").write_text("\n".join(lines[:48]), encoding="utf-8")
    own = ("--cep-data=judge=mine", "--cep-baselines=own", "suites/judge")
    assert gate(place, *own, "--judge=shapes:", "--snapshot-update").code == 0
    code, _, report = gate(place, *own, "--judge=shapes:?flip=0.9")
    assert code == 1
    assert {case["n"] for case in report["cases"] if case["part"] == "overall"} == {48}


QUESTIONS = ("0101001", "0101002", "0101003")

SUITE = """\
name = "opening"
version = 1
[data]
loader = "opening"
path = "questions"
[answer]
[prompts]
[roles]
interleaver = "shapes:"
judge = "shapes:"
[metrics.win_rate]
[metrics.failures]
[metrics.no_image]
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Three questions; answers to them: whole, with an image that is not there, without steps."""
    put_questions(tmp_path / "questions", [question(uid) for uid in QUESTIONS])
    folder = tmp_path / "X_output"
    put_answer(folder, QUESTIONS[0], [{"text": "So.", "image": f"{QUESTIONS[0]}-o-0.jpg"}])
    (folder / f"{QUESTIONS[0]}-o-0.jpg").write_bytes(png(7))
    put_answer(folder, QUESTIONS[1], [{"text": "Thus.", "image": f"{QUESTIONS[1]}-o-0.jpg"}])
    put_answer(folder, QUESTIONS[2], [])
    return folder


def test_failures_count_by_kind(tmp_path: Path, recorded: Path) -> None:
    """A missing file is a lost image, an answer without steps a missing answer. Nothing is measured
    on a part of the answers. Suites of chains are passed over: a run of all suites gates recorded
    answers where answers are asked for.
    """
    with Store(tmp_path / "store") as store:
        suite = prepare(tmp_path, store, SUITE, f"replay:{recorded}?layout=opening")
        failures = suite.measure("overall-failures")
        images = suite.measure("overall-no_image")
        answers = suite.measure()

    scores, lacks = (
        {uid: score for part in measured.scores.values() for uid, score in part.items()}
        for measured in (failures, images)
    )
    assert scores == dict(zip(QUESTIONS, (0.0, 1.0, 1.0), strict=True))
    assert failures.failures == {"empty-text": 1}
    assert "1 images of answers failed: 1 missing" in failures.notes
    assert lacks == dict(zip(QUESTIONS, (0, 1, 1), strict=True))
    assert [bool(answers.answers[uid]) for uid in QUESTIONS] == [True, True, False]
    assert answers.model["role"] == "replay"
    assert "layout=opening" in answers.model["identity"]
    (recorded / f"{QUESTIONS[2]}.json").unlink()
    words = "1 of 3 answers are missing"
    with Store(tmp_path / "store") as store, pytest.raises(DatasetError, match=words):
        prepare(tmp_path, store, SUITE, f"replay:{recorded}").measure()
    path = tmp_path / "suite.toml"
    path.write_text(SHAPES, "utf-8")
    with pytest.raises(SuiteNotApplicableError, match="brings interleaved answers"):
        load_prepared_suite(path, RoleChoices(f"replay:{recorded}"), {})


WORST = "shapes:?miss=0.6"


def rate(folder: Path, store: Store, suite: str = "arena") -> Ratings:
    """A study of the answers of a worse model against the accepted ones, which are perfect."""
    good = prepare(folder, store)
    worst = prepare(folder, store, model=WORST)
    runs = [RatedRun(name, record_of(own.measure())) for name, own in (("x", worst), ("y", good))]
    rated = RatedItems("pair", suite)
    answer_items(rated, good.run.dataset, runs, store)
    return write_rated(folder / "ratings", rated)


def accept_for_people(folder: Path, store: Store, judge: str) -> None:
    """Accept the perfect answers with people as the judge, as `cepbench arena rejudge` does."""
    accepted = prepare(folder, store, roles={"judge": judge})
    accepted.accept(["overall-win_rate", "overall-judge_failures"])


@pytest.fixture(scope="module")
def rated_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with that study beside it, on which nobody has voted; only to be copied."""
    root = tmp_path_factory.mktemp("rated")
    with Store(root / "store") as store:
        rate(root, store)
    return root


@pytest.fixture
def rated(tmp_path: Path, rated_root: Path) -> Iterator[Store]:
    """The store of a copy, with the study beside it."""
    shutil.copytree(rated_root, tmp_path, dirs_exist_ok=True)
    with Store(tmp_path / "store") as opened:
        yield opened


def test_people_decide_the_gate(tmp_path: Path, rated: Store) -> None:
    """Votes for the accepted answers are a regression; the same answers need no vote. Other votes
    are another judge in the store, and comparable with the same baseline.
    """
    ratings = read_ratings(tmp_path / "ratings")
    vote_all(ratings, lambda _: "B", ["ada"])
    roles = {"judge": f"human:{ratings.path}"}
    accept_for_people(tmp_path, rated, roles["judge"])
    worst = prepare(tmp_path, rated, model=WORST, roles=roles)

    assert prepare(tmp_path, rated, roles=roles).judge().verdict is Verdict.HELD
    assert worst.judge().verdict is Verdict.REGRESSED
    assert worst.measure().value == (20 - len(ratings.items)) / 2 / 20
    assert worst.measure("overall-judge_failures").value == 0

    for item in ratings.items.values():
        cast(ratings, side_vote(item, "ada", "A"))  # the last record counts
    after = prepare(tmp_path, rated, model=WORST, roles=roles)
    assert after.judge().verdict is Verdict.IMPROVED


def test_missing_votes_fail_the_gate(tmp_path: Path, rated: Store) -> None:
    """They are counted as unanswered, and no vote is made up for them."""
    ratings = read_ratings(tmp_path / "ratings")
    for item in list(ratings.items.values())[3:]:
        cast(ratings, side_vote(item, "ada", "Tie(A)"))
    roles = {"judge": f"human:{ratings.path}"}
    accept_for_people(tmp_path, rated, roles["judge"])
    worst = prepare(tmp_path, rated, model=WORST, roles=roles)

    judged = worst.judge()
    assert judged.verdict is Verdict.INCOMPARABLE
    assert "votes: 3 of 20 battles have no vote of people" in judged.reasons[0]
    assert worst.judge("overall-judge_failures").verdict is Verdict.REGRESSED
    assert worst.measure("overall-judge_failures").value == 3 / 20


def test_ratings_of_another_suite_decide_no_battle(tmp_path: Path, rated: Store) -> None:
    """People saw the answers of that one; what nobody judges is measured all the same."""
    ratings = rate(tmp_path / "other", rated, "other")
    prepare(tmp_path, rated).accept(["overall-win_rate"])
    worst = prepare(tmp_path, rated, model=WORST, roles={"judge": f"human:{ratings.path}"})
    with pytest.raises(SpecError, match=r"of the suite 'other': .* see the answers of"):
        worst.measure()
    assert worst.measure("overall-failures").value == 0


LINE = "agreement 0.82 with human_verdicts, measured 2026-11-20"


def bound_judge(spec: str) -> BoundRole:
    """A judge of the embedded world, bound."""
    return bind(parse_spec(spec), "judge", BindContext(lambda _: ""))


def keep(baselines: Path, bound: BoundRole, name: str = "", **changes: Any) -> Path:
    """A card of a judge as the command writes it, as far as reports read it."""
    identity = identify_judge(bound)
    card = {
        "judge": bound.spec,
        "people": "human_verdicts",
        "date": "2026-11-20",
        "asked": {"judge": vars(identity), "order": "both"},
        "accuracy": 0.824,
        "sees_nothing": False,
        "sentence": "a judge that sees .65",
    }
    path = card_path(baselines, identity) if not name else baselines / "judges" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "card": card | changes}), "utf-8")
    return path


def test_the_judges_own_card_is_found(tmp_path: Path) -> None:
    """Its line has agreement and date, whatever the file is called, and nothing hidden."""
    bound = bound_judge("shapes:?flip=0.1")
    path = keep(tmp_path, bound)
    keep(tmp_path, bound_judge("shapes:"))

    assert path.parent == tmp_path / "judges"
    assert path.name.startswith("shapes-flip-0-1-")
    assert remark_on_judge(tmp_path, bound) == (LINE, "")
    path.rename(path.with_name("renamed.json"))
    assert remark_on_judge(tmp_path, bound) == (LINE, "")
    keep(tmp_path, bound_judge("shapes:"), people="\x1b[31mred")
    assert "\x1b" not in remark_on_judge(tmp_path, bound_judge("shapes:"))[0]


def test_the_card_of_another_judge_is_not_used(tmp_path: Path) -> None:
    """Even under this judge's file name: the command is named, as it is without any card."""
    bound = bound_judge("shapes:?flip=0.1")
    keep(tmp_path, bound_judge("shapes:?flip=0.2"), card_path(tmp_path, identify_judge(bound)).name)

    for folder in (tmp_path, tmp_path / "none", None):
        line, warning = remark_on_judge(folder, bound)
        assert line.endswith("is not known here: `cepbench agree judges` measures it")
        assert not warning


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"card": {"judge": "x"}}', "\udcff", '{"x":' + "[" * 9**5]
)
def test_a_card_that_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    """A damaged card, and one of a file's verdicts, which names no judge: neither is used."""
    path = keep(tmp_path, bound_judge("shapes:"))
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    assert read_card(path) is None
    line = remark_on_judge(tmp_path, bound_judge("shapes:"))[0]
    assert line.endswith(f"measures it; the card {path.name} cannot be read")


def test_a_judge_that_sees_nothing_by_its_card_holds_nothing(tmp_path: Path) -> None:
    """The card's sentence is why a case is undecided."""
    bound = bound_judge("shapes:?flip=0.5")
    keep(tmp_path, bound, sees_nothing=True, sentence="it sees nothing of a true drop")

    said = "the judge cannot see a drop: its card says: it sees nothing of a true drop"
    assert remark_on_judge(tmp_path, bound)[1] == said
    with Store(tmp_path / "store") as store:
        prepare(tmp_path, store, model=WORSE).accept(["overall-win_rate"])
        accepted = prepare(tmp_path, store, model=WORSE)
        keep(
            accepted.baselines,
            bound_judge("shapes:"),
            sees_nothing=True,
            sentence="it sees nothing",
        )
        assert accepted.judge().verdict is Verdict.HELD  # no battle was fought
        judgement = prepare(tmp_path, store).judge()
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert "its card says: it sees nothing; a drop of 0." in judgement.reasons[0]
