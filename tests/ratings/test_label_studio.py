"""Studies in Label Studio and back: what it is given, and what is believed of what it returns."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.ratings.folder import Ratings, read_votes
from pytest_cepbench.ratings.label_studio import import_label_studio, write_label_studio
from pytest_cepbench.ratings.records import TASKS, Task
from pytest_cepbench.ratings.votes import winner_of
from tests.ratings.studies import BLUE, NAMES, RED, SAMPLE, make_study

USERS = {"3": "a1", "bob@example.org": "a2"}


def exported(ratings: Ratings, out: Path) -> list[dict[str, Any]]:
    """The tasks that Label Studio is given."""
    write_label_studio(ratings, out)
    tasks: list[dict[str, Any]] = json.loads((out / "tasks.json").read_text())
    return tasks


def annotation(**fields: Any) -> dict[str, Any]:
    """An annotation as Label Studio exports it, of user 3."""
    return {
        "id": 11,
        "completed_by": 3,
        "was_cancelled": False,
        "lead_time": 12.5,
        "created_at": "2026-11-22T10:00:00.000000Z",
        "result": [],
    } | fields


def choice(name: str, *values: str) -> dict[str, Any]:
    """One result of a choice."""
    return {"from_name": name, "type": "choices", "value": {"choices": list(values)}}


def returned(path: Path, tasks: list[Any]) -> Path:
    """The file that Label Studio exports."""
    path.write_text(json.dumps(tasks))
    return path


def results(kind: Task, task: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of a person: the first shown is better, or has the rank 1."""
    if kind == "pair":
        return [choice("verdict", "A")]
    if kind == "caption":
        return [choice("verdict", "C1")]
    if kind == "grades":
        numbers = range(len(task["data"]["shown"]))
        ranks = [
            {"from_name": f"rank_{n}", "type": "number", "value": {"number": n + 1}}
            for n in numbers
        ]
        return [*(choice(f"grade_{n}", "good" if n == 0 else "poor") for n in numbers), *ranks]
    if kind == "describe":
        text = {"text": ["a red picture"]}
        return [{"from_name": "text", "type": "textarea", "value": text}]
    return [choice("ticked", NAMES[0]), choice("added", NAMES[3])]


@pytest.mark.parametrize("kind", TASKS)
def test_there_and_back(kind: Task, tmp_path: Path) -> None:
    """Every kind: the tasks come back in another order, and each answer is of its own item."""
    ratings = make_study(tmp_path / "study", kind, 6)
    tasks = exported(ratings, tmp_path / "out")
    answered = [
        task | {"id": n, "annotations": [annotation(id=n, result=results(kind, task))]}
        for n, task in enumerate(tasks)
    ]
    path = returned(tmp_path / "back.json", answered[::-1])
    imported = import_label_studio(ratings, read_votes(ratings), path, USERS)
    votes = read_votes(ratings)

    assert imported.lines == ["6 votes are added"]
    assert {vote.item for vote in votes.answers()} == set(ratings.items)
    for vote in votes.answers():
        (task,) = [task for task in tasks if task["data"]["item"] == vote.item]
        assert (vote.annotator, vote.seconds, vote.at) == ("a1", 12.5, "2026-11-22T10:00:00Z")
        if kind == "pair":
            assert (winner_of(vote) == "A") == (task["data"]["shown"][0] == "first")
        if kind == "grades":
            first = task["data"]["shown"][0]
            assert vote.ranking[0] == first
            assert vote.grades[str(first)] == "good"
        if kind == "verify":
            assert (vote.ticked, vote.added) == ((NAMES[0],), (NAMES[3],))
    again = import_label_studio(ratings, votes, path, USERS)
    assert again.lines == ["6 answers were imported before"]
    assert len(read_votes(ratings).records["a1"]) == 6


@pytest.mark.parametrize("kind", TASKS)
def test_tasks_hide_models_and_markup(kind: Task, tmp_path: Path) -> None:
    """No name of a model or sample anywhere, no markup of theirs, and a form that is XML."""
    ratings = make_study(tmp_path / "study", kind, 6)
    exported(ratings, tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        text = path.read_text()
        assert not any(name in text for name in (RED, BLUE, SAMPLE))
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    for task in tasks:
        shown = "".join(v for k, v in task["data"].items() if k.endswith("_html"))
        tags = set(re.findall(r"<(/?\w+)", shown))
        assert tags <= {"p", "/p", "img"}
        assert "\u202e" not in shown
        assert not re.search(r"<[^>]*onerror", shown)
    form = ET.parse(tmp_path / "out" / "config.xml")
    fields = {node.get("value", "").lstrip("$") for node in form.iter() if node.get("toName")}
    shown_fields = {n.get("value", "").lstrip("$") for n in form.iter("HyperText")} | fields
    assert set(tasks[0]["data"]) - {"item", "shown"} <= shown_fields


def test_sides_are_balanced(tmp_path: Path) -> None:
    """Half of the items have their first answer on the right."""
    tasks = exported(make_study(tmp_path / "study", "pair", 10), tmp_path / "out")
    assert sum(task["data"]["shown"][0] == "first" for task in tasks) == 5


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """Cancelled ones, unknown items, and answers that are none, with the first reason."""
    ratings = make_study(tmp_path / "study", "pair", 6)
    tasks = exported(ratings, tmp_path / "out")
    good = [choice("verdict", "Tie(B)")]
    wrong_order = {"data": tasks[3]["data"] | {"shown": ["first", "first"]}}
    path = returned(
        tmp_path / "back.json",
        [
            tasks[0] | {"annotations": [annotation(was_cancelled=True, result=good)]},
            {"data": {"item": "0" * 64, "shown": ["first", "second"]},
             "annotations": [annotation(result=good)]},
            tasks[1] | {"annotations": [annotation(result=[choice("verdict", "<b>")])]},
            tasks[2] | {"annotations": [annotation(result=[])]},
            wrong_order | {"annotations": [annotation(result=good)]},
            tasks[4] | {"annotations": [annotation(result=good, lead_time="NaN")]},
            tasks[5] | {"annotations": "none"},
            "no task",
        ],
    )  # fmt: skip
    imported = import_label_studio(ratings, read_votes(ratings), path, USERS)

    assert (imported.cancelled, imported.unknown, imported.invalid) == (1, 1, 3)
    assert len(imported.votes) == 1
    assert imported.votes[0].seconds == 0
    assert "verdict, shown and winner contradict each other" in imported.lines[-1]


def test_strangers_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A user who is no annotator is named, with the option that says who it is."""
    ratings = make_study(tmp_path / "study", "pair", 2)
    tasks = exported(ratings, tmp_path / "out")
    given = [annotation(completed_by={"id": 9, "email": "x@example.org"},
                        result=[choice("verdict", "A")]),
             annotation(result=[choice("verdict", "A")])]  # fmt: skip
    path = returned(tmp_path / "back.json", [tasks[0] | {"annotations": given}])
    with pytest.raises(DatasetError, match=r"x@example\.org are none of .*--annotator x@"):
        import_label_studio(ratings, read_votes(ratings), path, USERS)
    assert not read_votes(ratings).answers()


def test_a_file_that_is_no_export(tmp_path: Path) -> None:
    """Named in one line."""
    ratings = make_study(tmp_path / "study", "pair", 2)
    path = tmp_path / "back.json"
    path.write_text('{"tasks": []}')
    with pytest.raises(DatasetError, match="is a list of tasks"):
        import_label_studio(ratings, read_votes(ratings), path, {})


def test_outputs_of_different_numbers_have_forms_of_their_own(tmp_path: Path) -> None:
    """Label Studio has one form for a project."""
    from pytest_cepbench.ratings.items import make_item
    from pytest_cepbench.ratings.records import Part
    from pytest_cepbench.studies.rated_items import RatedItems
    from tests.ratings.voted import write_rated

    rated = RatedItems("grades", "toy")
    for count in (2, 3):
        options = [[Part(text=f"output {n}")] for n in range(count)]
        rated.items.append(make_item("grades", [Part(text=f"{count}?")], options))
    write_label_studio(write_rated(tmp_path / "study", rated), tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        f"{kind}-{n}-outputs.{ending}"
        for kind, ending in (("config", "xml"), ("tasks", "json"))
        for n in (2, 3)
    ]
