"""Agreement of the annotators of a study, from votes in real files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.judge_agreement import krippendorff_alpha
from pytest_cepbench.ratings.folder import Ratings, read_votes
from pytest_cepbench.ratings.records import Vote, option_name
from pytest_cepbench.studies.rating_agreement import (
    Coefficient,
    RatingAgreement,
    measure_agreement,
)
from tests.ratings.studies import make_study
from tests.ratings.voted import cast, side_vote


def of(agreed: RatingAgreement, name: str) -> Coefficient:
    """A coefficient by its name."""
    return next(each for each in agreed.coefficients if each.name == name)


def measured(ratings: Ratings) -> RatingAgreement:
    """With few draws."""
    return measure_agreement(ratings, read_votes(ratings), draws=50)


VERDICTS = {
    "a1": ["A", "A", "B", "Tie(A)", "B", "A"],
    "a2": ["A", "Tie(A)", "B", "Tie(B)", "A", "A"],
}


@pytest.fixture
def judged(tmp_path: Path) -> Ratings:
    """Six battles with two votes each; everybody sees half of them swapped."""
    ratings = make_study(tmp_path / "study", "pair", 6)
    flipped = {"A": "B", "B": "A", "Tie(A)": "Tie(B)", "Tie(B)": "Tie(A)"}
    for name, verdicts in VERDICTS.items():
        for number, (item, verdict) in enumerate(
            zip(ratings.items.values(), verdicts, strict=True)
        ):
            turned = number % 2 == 1
            pressed = flipped[verdict] if turned else verdict
            seconds = float(number + 1)
            cast(ratings, side_vote(item, name, pressed, swapped=turned, seconds=seconds))
    return ratings


def test_verdicts_are_compared_in_the_items_order(judged: Ratings) -> None:
    """Four of six are equal where ties are forced, four where they are one verdict."""
    agreed = measured(judged)
    codes = {"A": 0.0, "Tie(A)": 1.0, "Tie(B)": 2.0, "B": 3.0}
    table = np.array([[codes[verdict] for verdict in own] for own in VERDICTS.values()])

    assert (agreed.items, agreed.judged, agreed.shared) == (6, 6, 6)
    assert of(agreed, "equal votes, ties forced").estimate.value == pytest.approx(4 / 6)
    assert of(agreed, "equal votes, ties one verdict").estimate.value == pytest.approx(4 / 6)
    alpha = of(agreed, "Krippendorff's alpha, ordinal").estimate
    assert alpha.value == pytest.approx(krippendorff_alpha(table))
    assert [each.votes for each in agreed.annotators] == [6, 6]


def test_repeats_and_checks(tmp_path: Path) -> None:
    """A repeat agrees where the same side wins; a check that was not passed counts as wrong."""
    ratings = make_study(tmp_path / "study", "pair", 4, attention=0.5)
    items = [item for item in ratings.items.values() if item.kind == "item"]
    checks = [item for item in ratings.items.values() if item.kind == "attention"]
    for item, first, again in zip(items, "AABB", ["A", "Tie(A)", "B", "A"], strict=True):
        cast(ratings, side_vote(item, "a1", first))
        cast(ratings, side_vote(item, "a1", again, kind="repeat"))
    for number, item in enumerate(checks):
        right = "A" if item.known["winner"] == "first" else "B"
        wrong = "B" if right == "A" else "A"
        vote = side_vote(item, "a1", wrong if number else right, kind="attention")
        cast(ratings, vote)
    agreed = measured(ratings)

    assert of(agreed, "the same answer again").estimate.value == 3 / 4
    assert of(agreed, "attention checks passed").estimate.value == 1 / len(checks)
    (record,) = agreed.annotators
    assert record.repeats == (3, 4)
    assert record.attention == (1, len(checks))
    assert of(agreed, "Krippendorff's alpha, nominal").estimate.value is None  # one vote each


def test_grades_are_drawn_by_item(tmp_path: Path) -> None:
    """Three grades of an item are one item of the bootstrap; ranks have an alpha of their own."""
    ratings = make_study(tmp_path / "study", "grades", 5)
    for name in ("a1", "a2"):
        for number, item in enumerate(ratings.items):
            vote = Vote(
                task="grades",
                item=item,
                annotator=name,
                shown=(0, 1, 2),
                grades={"0": "good", "1": "medium" if number % 2 else "poor", "2": "poor"},
                ranking=(0, (1, 2)) if name == "a1" else (0, 1, 2),
                seconds=4.0,
            )
            cast(ratings, vote)
    agreed = measured(ratings)

    equal = of(agreed, "equal votes").estimate
    assert (equal.value, equal.items) == (1, 5)
    scales = {each.scale for each in agreed.coefficients}
    assert scales == {"grades", "ranks", "votes"}
    ranks = next(each for each in agreed.coefficients if each.scale == "ranks")
    assert ranks.estimate.value is not None
    assert 0 < ranks.estimate.value < 1


def test_ticked_names_are_compared_one_by_one(tmp_path: Path) -> None:
    """Two people who differ in one of three names of each image agree in two thirds."""
    ratings = make_study(tmp_path / "study", "verify", 4)
    for name in ("a1", "a2"):
        for item in ratings.items.values():
            offered = [option_name(option) for option in item.options]
            ticked = offered[:2] if name == "a1" else offered[:1]
            rest = tuple(other for other in offered if other not in ticked)
            vote = Vote(
                task="verify", item=item.item, annotator=name, ticked=tuple(ticked), unticked=rest
            )
            cast(ratings, vote)
    agreed = measured(ratings)
    equal = of(agreed, "equal votes").estimate
    assert equal.value == pytest.approx(2 / 3)
    assert equal.items == 4
    with pytest.raises(StopIteration):
        of(agreed, "Krippendorff's alpha, ordinal")  # names have no order


def test_votes_that_do_not_count_are_counted(judged: Ratings) -> None:
    """A line that was cut, an unknown item, and an answer that is none; skipped items are told."""
    first = next(iter(judged.items.values()))
    at = "2026-11-22T10:00:00Z"
    cast(judged, Vote(task="pair", item=first.item, annotator="a1", skip="unclear", at=at))
    stranger = msgspec.structs.replace(side_vote(first, "a2", "A"), item="0" * 64)
    cast(judged, stranger, msgspec.structs.replace(side_vote(first, "a2", "A"), winner="second"))
    with judged.vote_path("a2").open("ab") as file:
        file.write(b'{"v":1,"task":"pa')
    agreed = measured(judged)

    assert len(agreed.remarks) == 3
    assert agreed.annotators[0].skipped == 1
    assert agreed.judged == 6
    assert agreed.shared == 5


def test_nobody_has_judged(tmp_path: Path) -> None:
    """Said in a sentence."""
    ratings = make_study(tmp_path / "study", "pair", 2)
    with pytest.raises(DatasetError, match="nobody has judged an item yet"):
        measured(ratings)
