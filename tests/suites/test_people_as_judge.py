"""A suite of answers whose battles people have judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate import Verdict, record_of
from pytest_cepbench.gate.baseline import baseline_path, dump_baseline, read_baseline
from pytest_cepbench.ratings.folder import Ratings
from pytest_cepbench.store import Store
from pytest_cepbench.studies.rated_items import ItemDraw, RatedRun, answer_pairs
from tests.ratings.voted import cast, side_vote, vote_all, write_rated
from tests.suites.answers import ANSWERS, WORSE, prepare

WORST = "shapes:?miss=0.6"


def rate(folder: Path, store: Store, suite: str = "arena") -> Ratings:
    """A study of the answers of a worse model against the accepted ones, which are perfect."""
    good = prepare(folder, store)
    worst = prepare(folder, store, model=WORST)
    runs = [RatedRun(name, record_of(own.measure())) for name, own in (("x", worst), ("y", good))]
    return write_rated(
        folder / "ratings", answer_pairs(suite, good.run.dataset, runs, store, ItemDraw())
    )


def accept_for_people(folder: Path, store: Store, judge: str) -> None:
    """Accept the perfect answers with people as the judge, as `cepbench arena rejudge` does."""
    accepted = prepare(folder, store, roles={"judge": judge})
    accepted.accept()


def test_people_decide_the_gate(tmp_path: Path) -> None:
    """Votes for the accepted answers are a regression; the same answers need no vote."""
    with Store(tmp_path / "store") as store:
        ratings = rate(tmp_path, store)
        vote_all(ratings, lambda _: "B")
        judge = f"human:{ratings.path}"
        accept_for_people(tmp_path, store, judge)
        roles = {"judge": judge}
        same = prepare(tmp_path, store, roles=roles)
        worst = prepare(tmp_path, store, model=WORST, roles=roles)

        assert same.judge().verdict is Verdict.HELD
        assert worst.judge().verdict is Verdict.REGRESSED
        assert worst.measure().value == (20 - len(ratings.items)) / 2 / 20
        assert worst.measure("overall-judge_failures").value == 0


def test_missing_votes_fail_the_gate(tmp_path: Path) -> None:
    """They are counted as unanswered, and no vote is made up for them."""
    with Store(tmp_path / "store") as store:
        ratings = rate(tmp_path, store)
        for item in list(ratings.items.values())[3:]:
            cast(ratings, side_vote(item, "ada", "Tie(A)"))
        roles = {"judge": f"human:{ratings.path}"}
        accept_for_people(tmp_path, store, roles["judge"])
        worst = prepare(tmp_path, store, model=WORST, roles=roles)

        judged = worst.judge()
        assert judged.verdict is Verdict.INCOMPARABLE
        assert "votes: 3 of 20 battles have no vote of people" in judged.reasons[0]
        assert worst.judge("overall-judge_failures").verdict is Verdict.REGRESSED
        assert worst.measure("overall-judge_failures").value == 3 / 20


def test_baselines_outlive_the_votes_of_one_study(tmp_path: Path) -> None:
    """Other votes are another judge in the store, and comparable with the same baseline."""
    with Store(tmp_path / "store") as store:
        ratings = rate(tmp_path, store)
        judge = f"human:{ratings.path}"
        vote_all(ratings, lambda _: "B", ["ada"])
        accept_for_people(tmp_path, store, judge)
        before = prepare(tmp_path, store, model=WORST, roles={"judge": judge})
        assert before.judge().verdict is Verdict.REGRESSED

        for item in ratings.items.values():
            cast(ratings, side_vote(item, "ada", "A"))  # the last record counts
        after = prepare(tmp_path, store, model=WORST, roles={"judge": judge})
        assert after.judge().verdict is Verdict.IMPROVED


def test_another_judge_than_people_is_not_compared(tmp_path: Path) -> None:
    """Verdicts of a model and of people are on different scales."""
    with Store(tmp_path / "store") as store:
        ratings = rate(tmp_path, store)
        vote_all(ratings, lambda _: "B")
        prepare(tmp_path, store).accept()
        worst = prepare(tmp_path, store, model=WORSE, roles={"judge": f"human:{ratings.path}"})
        judged = worst.judge()
        assert judged.verdict is Verdict.INCOMPARABLE
        assert any("judge" in reason for reason in judged.reasons)


def test_ratings_of_another_suite_decide_no_battle(tmp_path: Path) -> None:
    """People saw the answers of that one; what nobody judges is measured all the same."""
    with Store(tmp_path / "store") as store:
        ratings = rate(tmp_path, store, "other")
        prepare(tmp_path, store).accept()
        worst = prepare(tmp_path, store, model=WORST, roles={"judge": f"human:{ratings.path}"})
        with pytest.raises(SpecError, match=r"of the suite 'other': .* see the answers of"):
            worst.measure()
        assert worst.measure("overall-failures").value == 0


def test_the_judge_in_a_baseline_is_people(tmp_path: Path) -> None:
    """Its identity names no votes."""
    with Store(tmp_path / "store") as store:
        ratings = rate(tmp_path, store)
        vote_all(ratings, lambda _: "B")
        accept_for_people(tmp_path, store, f"human:{ratings.path}")
        suite = prepare(tmp_path, store, ANSWERS)
        key = suite.cases["overall-win_rate"].key
        baseline = read_baseline(baseline_path(suite.baselines, key), key)
        assert baseline is not None
        assert baseline.identity["judge"] == "people's votes human/1 people votes=majority"
        assert "people's votes" in dump_baseline(baseline)
