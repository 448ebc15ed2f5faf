"""Which labels may decide: those of these very answers, of battles that were drawn, in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as changed

from pytest_cepbench.errors import LabelError
from pytest_cepbench.gate.labels.label_file import Contestant, Label, LabelFile
from pytest_cepbench.gate.labels.usable import (
    PeopleScores,
    UsableLabels,
    bounds_by_labels,
    check_drawn_first,
    find_labels,
    judged_first,
    people_scores,
)
from pytest_cepbench.gate.statistics import Bounds
from tests.gate.labels.build import battles, drawn_file

SIZES = {"a": 10, "b": 10}

PATH = Path("labels/arena/x.jsonl")


def measured(value: float = 0.5) -> dict[str, dict[str, float]]:
    """The judge's score of every battle."""
    return {name: {f"{name}/{i}": value for i in range(n)} for name, n in SIZES.items()}


def found(files: Sequence[LabelFile], own: list[Contestant]) -> UsableLabels:
    """The labels of these battles of the suite `arena`."""
    return find_labels(files, own, "arena")


def test_labels_of_these_answers_are_found() -> None:
    """Those of the drawn battles, by sample."""
    own = battles(SIZES)
    file = drawn_file(PATH, own, 8)
    labels = found([file], own)
    assert labels.file is file
    assert labels.scores == dict.fromkeys(file.drawn, 1.0)
    assert labels.notes() == []


def test_labels_of_other_answers_never_decide() -> None:
    """Of another candidate, or after one other answer: counted, and not one is used."""
    file = drawn_file(PATH, battles(SIZES, "an earlier model"), 8)
    labels = found([file], battles(SIZES))
    assert (labels.file, labels.scores, labels.others) == (None, {}, 8)
    assert labels.notes() == ["8 labels in other files are of other answers: not one is used"]
    fewer = battles({"a": 10, "b": 9})
    assert found([drawn_file(PATH, battles(SIZES), 8)], fewer).scores == {}


def rated(own: list[Contestant], labelled: float, score: float = 0.0) -> UsableLabels:
    """All battles drawn, of which people labelled a share of those that need them."""
    asked = sorted(c.sample for c in own if not c.battle.decided)
    return found(
        [
            drawn_file(
                PATH, own, len(own), dict.fromkeys(asked[: round(labelled * len(asked))], score)
            )
        ],
        own,
    )


def scored(
    own: list[Contestant], labels: UsableLabels, judge: float = 0.5
) -> tuple[PeopleScores | None, str]:
    """People's scores where the judge gives each battle that needs it the same score."""
    decided = {c.sample for c in own if c.battle.decided}
    scores: dict[str, dict[str, float]] = {}
    for contestant in own:
        known = contestant.sample in decided
        scores.setdefault(contestant.category, {})[contestant.sample] = 0.5 if known else judge
    return people_scores(labels, scores, decided, {})


EQUAL = tuple(f"{name}/{i}" for name in "ab" for i in range(30))
"""Sixty of a hundred battles that are decided without people."""

HALF_DECIDED = {"a": 50, "b": 50}


@pytest.mark.parametrize(("labelled", "count"), [(0.0, 0), (0.25, 10), (0.875, 35)])
def test_a_rating_that_has_not_ended_is_not_used(labelled: float, count: int) -> None:
    """Without a label, and with more than a tenth of them missing: the decided ones say nothing."""
    own = battles(HALF_DECIDED, equal=EQUAL)
    people, why = scored(own, rated(own, labelled))
    assert people is None
    assert why.startswith(f"rating not finished: {count} of 40 drawn battles that need people have")
    assert "cepbench rate labels" in why


def test_a_few_missing_labels_are_made_up_for_by_their_category() -> None:
    """People find all losses: with two labels missing of one category the mean is as with all."""
    own = battles(HALF_DECIDED, equal=EQUAL)
    whole, _ = scored(own, rated(own, 1.0))
    people, why = scored(own, rated(own, 0.95))
    assert people is not None
    assert whole is not None
    assert (why, people.missing, people.decided, people.rated) == ("", 2, 60, 38)
    assert people.scores.keys() == whole.scores.keys()
    assert sum(people.scores.values()) == pytest.approx(sum(whole.scores.values()))
    assert sorted(set(people.scores.values())) == [0.5 - 0.5 * 20 / 18, 0.0, 0.5]
    assert people.stretch == pytest.approx(20 / 18)


def test_a_category_of_which_most_labels_are_missing_is_not_used() -> None:
    """Few of all are missing, and they are half or all of what a small category needs."""
    own = battles({"a": 60, "b": 8}, equal=tuple(f"b/{i}" for i in range(5)))
    for lacking, used in (("b/7",), True), (("b/6", "b/7"), False), (("b/5", "b/6", "b/7"), False):
        given = {c.sample: 0.0 for c in own if not c.battle.decided and c.sample not in lacking}
        people, why = scored(own, found([drawn_file(PATH, own, len(own), given)], own))
        assert (people is not None) is used
        assert used or f"{3 - len(lacking)} of 3 drawn battles of b that need people" in why


def test_missing_labels_move_no_mean_and_add_their_own_error() -> None:
    """Of 300 ways in which a tenth can be missing the mean is that of all labels.

    The variance that bounds are made of is at least the one with all labels and what the choice of
    those that are missing adds to it.
    """
    own = battles({"a": 60, "b": 140}, equal=tuple(f"b/{i}" for i in range(100)))
    asked = [c.sample for c in own if not c.battle.decided]
    generator = np.random.default_rng(0)
    truth = dict(zip(asked, generator.choice([0.0, 0.0, 1.0], len(asked)).tolist(), strict=True))
    judge = {name: {c.sample: 0.5 for c in own if c.category == name} for name in "ab"}

    def bounds_without(missing: list[str]) -> Bounds:
        given = {sample: truth[sample] for sample in asked if sample not in missing}
        people, why = scored(own, found([drawn_file(PATH, own, len(own), given)], own))
        assert people is not None, why
        return bounds_by_labels(judge, people, {}, 0.05)

    whole = bounds_without([])
    some = [bounds_without(generator.permutation(asked)[:10].tolist()) for _ in range(300)]
    means = np.array([bounds.mean for bounds in some])
    assert abs(means.mean() - whole.mean) < 3 * means.std() / np.sqrt(len(means))
    assert whole.spread is not None
    spreads = [bounds.spread for bounds in some if bounds.spread is not None]
    added = float(means.var(ddof=1))
    assert float(np.mean(np.square(spreads))) / 200 > whole.spread**2 / 200 + added > 0


def test_labels_of_battles_that_were_not_drawn_are_left_out() -> None:
    """Battles that somebody picked are no random part of them."""
    own = battles(SIZES)
    file = drawn_file(PATH, own, 8)
    picked = next(c.battle for c in own if c.sample not in file.drawn)
    more = replace(file, labels={**file.labels, picked: Label(**picked._asdict(), score=1.0)})
    labels = found([more], own)
    assert (labels.undrawn, len(labels.scores)) == (1, 8)
    assert "not drawn are not used" in labels.notes()[0]


def test_a_draw_by_hand_is_refused() -> None:
    """The battles of a file are drawn again: another choice, or another probability, shows."""
    own = battles(SIZES)
    file = drawn_file(PATH, own, 8)
    others = drawn_file(PATH, battles(SIZES, "another"), 8)
    by_sample = {c.sample: c.battle for c in own}
    chosen = {
        s: type(d)(sample=s, **by_sample[s]._asdict(), probability=d.probability)
        for s, d in others.drawn.items()
    }
    assert chosen.keys() != file.drawn.keys()
    for drawn in (chosen, dict(list(file.drawn.items())[:-1])):
        with pytest.raises(LabelError, match="made by hand or changed"):
            found([replace(file, drawn=drawn)], own)


def test_labels_that_were_drawn_after_verdicts_are_refused() -> None:
    """One line that says when, how many verdicts were there, and what to do."""
    file = drawn_file(PATH, battles(SIZES), 8)
    moment = file.draw.seconds
    assert check_drawn_first(file, [moment + 1, moment]) == ""
    with pytest.raises(LabelError, match="3 of 20 battles had verdicts") as caught:
        check_drawn_first(file, [moment - 60, moment - 1, moment - 1, moment + 1])
    assert "2026-11-20T09:59:00+00:00" in str(caught.value)
    assert "verdicts on another model with the same answers count too" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tenth_of_the_battles_may_have_been_judged() -> None:
    """As where another model gave the same answers; it is noted, and one more is refused."""
    file = drawn_file(PATH, battles(SIZES), 8)
    early = file.draw.seconds - 1
    note = check_drawn_first(file, [early, early, early + 2])
    assert note.startswith("2 of 20 battles had verdicts before labels were drawn")
    assert (judged_first(2, 20), judged_first(0, 5)) == ("", "")
    assert judged_first(1, 9).startswith("1 of 9 battles had verdicts of the judge before the draw")


@pytest.mark.parametrize("count", [2, 3, 21, 10**30])
def test_a_count_that_cannot_be_drawn_names_its_file(count: int) -> None:
    """More battles than there are, or too few for the categories, edited into the first line."""
    own = battles(SIZES)
    file = drawn_file(PATH, own, 8)
    with pytest.raises(LabelError, match="line 1") as caught:
        found([replace(file, draw=changed(file.draw, count=count))], own)
    assert str(PATH) in str(caught.value)
    assert f"{count} battles are to be drawn" in str(caught.value)


def test_labels_of_another_suite_are_refused() -> None:
    """The same answers in a suite of another name: its file was copied."""
    own = battles(SIZES)
    with pytest.raises(
        LabelError, match="line 1: drawn for the suite 'arena', and this is 'other'"
    ):
        find_labels([drawn_file(PATH, own, 8)], own, "other")


def test_decided_battles_need_no_people() -> None:
    """Equal answers score one half without a label, and are no missing ones."""
    own = battles(SIZES, equal=tuple(f"a/{i}" for i in range(10)))
    file = drawn_file(PATH, own, 8, {})
    decided = {c.sample for c in own if c.battle.decided}
    rated = {s: 0.0 for s in file.drawn if s not in decided}
    labels = found([drawn_file(PATH, own, 8, rated)], own)
    people, why = people_scores(labels, measured(), decided, {})
    assert (labels.missing, why) == (0, "")
    assert people is not None
    assert len(people.scores) == 8
    assert {people.scores[s] for s in file.drawn if s in decided} == {0.5}


def test_a_category_without_two_drawn_battles_goes_by_the_judge() -> None:
    """Its spread is not known; the sentence names it."""
    own = battles(SIZES)
    drawn = drawn_file(PATH, own, 8)
    parts = measured()
    alone = {s: 0.5 for s in parts["b"] if s not in drawn.drawn}
    people, why = people_scores(found([drawn], own), parts | {"b": alone}, set(), {})
    assert people is None
    assert why == "category b has 0 drawn battles, 2 are needed"


def test_a_cluster_with_a_missing_label_is_not_labelled() -> None:
    """Of two seeds of a question with one label neither counts: the others count for both."""
    own = battles({"a": 40})
    file = drawn_file(PATH, own, 21)
    first, second = sorted(file.drawn)[:2]
    rest = {s: 1.0 for s in file.drawn if s != first}
    labels = found([drawn_file(PATH, own, 21, rest)], own)
    scores = {"a": {c.sample: 0.5 for c in own}}
    people, _ = people_scores(labels, scores, set(), {first: "unit", second: "unit"})
    assert people is not None
    assert people.scores.keys() == file.drawn.keys()
    assert people.scores[first] == people.scores[second] == 0.5
    assert {s for s in people.scores if people.scores[s] == 0.5 + 0.5 * 20 / 19} == (
        set(file.drawn) - {first, second}
    )
