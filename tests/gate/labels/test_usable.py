"""Which labels may decide: those of these very answers, of battles that were drawn, in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cepbench.errors import LabelError
from pytest_cepbench.gate.labels.label_file import Label
from pytest_cepbench.gate.labels.usable import check_drawn_first, find_labels, people_scores
from tests.gate.labels.build import battles, drawn_file

SIZES = {"a": 10, "b": 10}

PATH = Path("labels/arena/x.jsonl")


def measured(value: float = 0.5) -> dict[str, dict[str, float]]:
    """The judge's score of every battle."""
    return {name: {f"{name}/{i}": value for i in range(n)} for name, n in SIZES.items()}


def test_labels_of_these_answers_are_found() -> None:
    """Those of the drawn battles, by sample."""
    own = battles(SIZES)
    file = drawn_file(PATH, own, 8)
    labels = find_labels([file], own)
    assert labels.file is file
    assert labels.scores == dict.fromkeys(file.drawn, 1.0)
    assert labels.notes() == labels.warnings() == []


def test_labels_of_other_answers_never_decide() -> None:
    """Of another candidate, or after one other answer: counted, and not one is used."""
    file = drawn_file(PATH, battles(SIZES, "an earlier model"), 8)
    labels = find_labels([file], battles(SIZES))
    assert (labels.file, labels.scores, labels.others) == (None, {}, 8)
    assert labels.notes() == ["8 labels in other files are of other answers: not one is used"]
    fewer = battles({"a": 10, "b": 9})
    assert find_labels([drawn_file(PATH, battles(SIZES), 8)], fewer).scores == {}


def test_missing_labels_are_counted() -> None:
    """They count as not drawn; many of them are a warning."""
    own = battles(SIZES)
    some = sorted(drawn_file(PATH, own, 8).drawn)[:5]
    labels = find_labels([drawn_file(PATH, own, 8, dict.fromkeys(some, 0.5))], own)
    assert (labels.missing, len(labels.scores)) == (3, 5)
    assert "3 drawn battles have no label yet" in labels.notes()[0]
    assert "3 of 8 drawn battles have no label" in labels.warnings()[0]


def test_labels_of_battles_that_were_not_drawn_are_left_out() -> None:
    """Battles that somebody picked are no random part of them."""
    own = battles(SIZES)
    file = drawn_file(PATH, own, 8)
    picked = next(c.battle for c in own if c.sample not in file.drawn)
    more = replace(file, labels={**file.labels, picked: Label(**picked._asdict(), score=1.0)})
    labels = find_labels([more], own)
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
            find_labels([replace(file, drawn=drawn)], own)


def test_labels_that_were_drawn_after_a_verdict_are_refused() -> None:
    """One line that says when, and how many verdicts were there."""
    file = drawn_file(PATH, battles(SIZES), 8)
    moment = file.draw.seconds
    check_drawn_first(file, [moment + 1, moment])
    with pytest.raises(LabelError, match="after 2 of the verdicts") as caught:
        check_drawn_first(file, [moment - 60, moment - 1, moment + 1])
    assert "2026-11-20T09:59:00+00:00" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_decided_battles_need_no_people() -> None:
    """Equal answers score one half without a label, and are no missing ones."""
    own = battles(SIZES, equal=tuple(f"a/{i}" for i in range(10)))
    file = drawn_file(PATH, own, 8, {})
    decided = {c.sample for c in own if c.battle.decided}
    rated = {s: 0.0 for s in file.drawn if s not in decided}
    labels = find_labels([drawn_file(PATH, own, 8, rated)], own)
    people, why = people_scores(labels, measured(), decided, {})
    assert (labels.missing, why) == (0, "")
    assert people is not None
    assert len(people.scores) == 8
    assert {people.scores[s] for s in file.drawn if s in decided} == {0.5}


def test_a_category_without_two_labels_goes_by_the_judge() -> None:
    """Its spread is not known; the sentence names it."""
    own = battles(SIZES)
    drawn = drawn_file(PATH, own, 8).drawn
    only = {s: 1.0 for s in drawn if s.startswith("a/")}
    labels = find_labels([drawn_file(PATH, own, 8, only)], own)
    people, why = people_scores(labels, measured(), set(), {})
    assert people is None
    assert why.startswith("category b has labels of 0 battles, and 2 are needed")


def test_a_cluster_with_a_missing_label_is_not_labelled() -> None:
    """Of two seeds of a question with one label neither counts."""
    own = battles({"a": 20})
    file = drawn_file(PATH, own, 8)
    first, second = sorted(file.drawn)[:2]
    rest = {s: 1.0 for s in file.drawn if s != first}
    labels = find_labels([drawn_file(PATH, own, 8, rest)], own)
    scores = {"a": {c.sample: 0.5 for c in own}}
    people, _ = people_scores(labels, scores, set(), {first: "unit", second: "unit"})
    assert people is not None
    assert set(people.scores) == set(file.drawn) - {first, second}
