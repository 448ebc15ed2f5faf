"""Battles with stored verdicts: what a table of them says, and what is refused in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.judged_battles import VERDICT, load_judged_battles
from pytest_cepbench.errors import DatasetError

SUITE = Path(__file__).parents[2] / "suites" / "judge"

LINE: dict[str, Any] = {
    "id": "b/1",
    "category": "b",
    "verdict": "Tie(B)",
    "question": [{"drawing": "one shape : small red circle top left", "jitter": 3}, {"text": "?"}],
    "first": [{"text": "one"}, {"text": "two", "drawing": "no shapes"}],
    "second": [{"drawing": "one shape : large blue cross bottom right"}],
}


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    """A table of these lines."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "battles.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"verdict": "C"}, "line 1, verdict: .*'C'"),
        ({"models": ["a"]}, "line 1: .*models"),
        ({"first": []}, "line 1: first is empty"),
        ({"question": []}, "line 1: question is empty"),
        ({"category": ""}, "line 1: category is empty"),
        ({"first": [{}]}, "line 1, first: a piece has neither a text nor an image"),
        ({"first": [{"text": 3}]}, r"line 1, first\[0\]\.text: .*int"),
        ({"half \ud800": 1}, "line 1: .* half of a surrogate pair"),
        ({"second": [{"drawing": "one circle"}]}, "line 1, second: 'one circle' .* is no drawing"),
        ({"second": [{"drawing": "no shapes", "jitter": -1}]}, "is no drawing"),
        ({"second": [{"drawing": "no shapes", "image": "a.png"}]}, "an image and a drawing"),
        ({"second": [{"image": "../a.png"}]}, "leads out of the folder"),
        ({"second": [{"image": "gone.png"}]}, "there is no image 'gone.png'"),
        ({"second": [{"image": "/etc/passwd"}]}, "is an absolute path"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    """Fields, pieces, drawings, and images that lead out of the folder."""
    with pytest.raises(DatasetError, match=message):
        load_judged_battles(write(tmp_path, LINE | changed))


def test_an_id_stands_once_and_a_table_has_a_line(tmp_path: Path) -> None:
    """Two battles of one id would be one score."""
    with pytest.raises(DatasetError, match="sample id 'b/1' is there twice"):
        load_judged_battles(write(tmp_path, LINE, LINE))
    with pytest.raises(DatasetError, match="no samples"):
        load_judged_battles(write(tmp_path))


def test_shipped_battles_are_24_of_each_category() -> None:
    """With few ties, and both sides winning about as often."""
    samples = load_judged_battles(SUITE).samples
    counts = [sample.categories[0] for sample in samples]
    assert {counts.count(name) for name in counts} == {24}
    verdicts = [sample.metadata[VERDICT] for sample in samples]
    assert len(verdicts) == 240
    assert abs(verdicts.count("A") - verdicts.count("B")) < 25
    assert verdicts.count("Tie(A)") + verdicts.count("Tie(B)") < 25
