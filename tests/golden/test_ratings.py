"""Records of people's ratings: folders of studies are kept for years."""

from __future__ import annotations

import json
from typing import Any

from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import Item, Part, Source, Study, Vote, record_line
from tests.golden.frozen import assert_frozen

QUESTION = [Part(text="Draw a red cross."), Part(image="1" * 64)]

OPTIONS = [[Part(text="Here:"), Part(image="2" * 64)], [Part(text="No.")]]


def test_lines_of_a_ratings_folder() -> None:
    """Digests of items and options, and every field of a line as it is written."""
    known = {"winner": "first"}
    item = make_item("pair", QUESTION, OPTIONS, "attention", known, probability=0.25)
    vote: dict[str, Any] = {
        "item": item.item, "annotator": "ann", "key": "0123456789abcdef", "seconds": 7.4,
        "at": "2026-11-22T10:00:00.120Z", "browser": (1280, 800), "note": "dark",
    }  # fmt: skip
    votes = [
        Vote(
            task="pair", page="pair/1", kind="repeat", shown=("second", "first"), verdict="Tie(A)",
            winner="second", tie=True, **vote,
        ),
        Vote(task="caption", page="caption/1", verdict="B", winner="comparable", **vote),
        Vote(
            task="grades", page="grades/1", shown=(1, 0, 2), ranking=(1, (0, 2)),
            grades={"0": "poor", "1": "good", "2": "poor"}, **vote,
        ),
        Vote(task="describe", page="describe/1", text="a cross", words=2, pasted=False, **vote),
        Vote(task="verify", page="verify/1", ticked=("a",), unticked=(), added=("b",), **vote),
        Vote(task="pair", page="pair/1", skip="broken image", **vote),
        Vote(task="pair", page="pair/1", undo=True, **vote),
    ]  # fmt: skip
    source = Source(item=item.item, option=item.options[0].option, model="m", sample="s")
    records: list[Item | Source | Vote] = [item, source, *votes]
    lines = [json.loads(record_line(record)) for record in records]
    fields = {name: str(kind) for name, kind in Study.__annotations__.items()}
    assert_frozen("rating_records.json", {"lines": lines, "study": fields})
