"""Cards of judges beside the baselines: found by the judge's identity, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.gate import Verdict
from pytest_cepbench.models.binding import BindContext, BoundRole, bind
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites.judge_cards import (
    card_path,
    identify_judge,
    read_card,
    remark_on_judge,
)
from tests.suites.answers import WORSE, prepare

LINE = "agreement 0.82 with human_verdicts, measured 2026-11-20"


def judge(spec: str) -> BoundRole:
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
    bound = judge("shapes:?flip=0.1")
    path = keep(tmp_path, bound)
    keep(tmp_path, judge("shapes:"))

    assert path.parent == tmp_path / "judges"
    assert path.name.startswith("shapes-flip-0-1-")
    assert remark_on_judge(tmp_path, bound) == (LINE, "")
    path.rename(path.with_name("renamed.json"))
    assert remark_on_judge(tmp_path, bound) == (LINE, "")
    keep(tmp_path, judge("shapes:"), people="\x1b[31mred")
    assert "\x1b" not in remark_on_judge(tmp_path, judge("shapes:"))[0]


def test_the_card_of_another_judge_is_not_used(tmp_path: Path) -> None:
    """Even under this judge's file name: the command is named, as it is without any card."""
    bound = judge("shapes:?flip=0.1")
    keep(tmp_path, judge("shapes:?flip=0.2"), card_path(tmp_path, identify_judge(bound)).name)

    for folder in (tmp_path, tmp_path / "none", None):
        line, warning = remark_on_judge(folder, bound)
        assert line.endswith("is not known here: `cepbench agree judges` measures it")
        assert not warning


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"card": {"judge": "x"}}', "\udcff", '{"x":' + "[" * 9**5]
)
def test_a_card_that_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    """A damaged card, and one of a file's verdicts, which names no judge: neither is used."""
    path = keep(tmp_path, judge("shapes:"))
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    assert read_card(path) is None
    line = remark_on_judge(tmp_path, judge("shapes:"))[0]
    assert line.endswith(f"measures it; the card {path.name} cannot be read")


def test_a_judge_that_sees_nothing_by_its_card_holds_nothing(tmp_path: Path) -> None:
    """The card's sentence is why a case is undecided."""
    bound = judge("shapes:?flip=0.5")
    keep(tmp_path, bound, sees_nothing=True, sentence="it sees nothing of a true drop")

    said = "the judge cannot see a drop: its card says: it sees nothing of a true drop"
    assert remark_on_judge(tmp_path, bound)[1] == said
    with Store(tmp_path / "store") as store:
        prepare(tmp_path, store, model=WORSE).accept(["overall-win_rate"])
        accepted = prepare(tmp_path, store, model=WORSE)
        keep(accepted.baselines, judge("shapes:"), sees_nothing=True, sentence="it sees nothing")
        assert accepted.judge().verdict is Verdict.HELD  # no battle was fought
        judgement = prepare(tmp_path, store).judge()
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert "its card says: it sees nothing; a drop of 0." in judgement.reasons[0]
