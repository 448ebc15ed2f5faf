"""A study in Label Studio: its tasks with the form of their pages, and people's answers from it."""

from __future__ import annotations

import html
import json
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import canonical_json, digest_text
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.datasets.sources.text_files import read_json
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.escapes import escape_json, one_line, visible
from pytest_cepbench.files import read_regular
from pytest_cepbench.ratings.assignment import Order
from pytest_cepbench.ratings.folder import Ratings, VoteFile, Votes
from pytest_cepbench.ratings.records import (
    CHOICES,
    GRADES,
    Item,
    Part,
    Task,
    Vote,
    fault_of,
    option_name,
    un_swapped,
)
from pytest_cepbench.ratings.votes import check_annotators
from pytest_cepbench.replacement import replace_files

# -- a study as tasks for Label Studio, with the form that its pages need --------------------------
# What models wrote is escaped, since Label Studio shows the fields as HTML; images are in the
# tasks themselves, so that no file name says where they come from. Tasks are in the order of their
# digests.


VERDICT, TICKED, ADDED, TEXT = "verdict", "ticked", "added", "text"
"""Names of the fields of the form."""

GRADE, RANK = "grade_", "rank_"
"""The beginnings of the fields of each output, numbered from 0 in the order of the page."""

_MOST_IMAGE = 64 * 2**20

_WORDS: Mapping[str, str] = {
    "A": "A is better",
    "Tie(A)": "Tie, A is slightly better",
    "Tie(B)": "Tie, B is slightly better",
    "B": "B is better",
    "C1": "Caption 1 is better",
    "C2": "Caption 2 is better",
}


def write_label_studio(ratings: Ratings, out: Path) -> list[Path]:
    """Write the tasks and the form of a study; returns the files.

    Studies whose items have different numbers of outputs get tasks and a form for each number, as a
    project of Label Studio has one form. Practice items are left out: it gives no feedback.
    Raises DatasetError for an image that is missing, WriteError where the files cannot be written.
    """
    order = Order(ratings.study, list(ratings.items.values()))
    asked = [item for item in ratings.items.values() if item.kind != "practice"]
    asked.sort(key=lambda item: item.item)
    graded = ratings.study.kind == "grades"
    counts = sorted({len(item.options) if graded else 0 for item in asked})
    files: dict[Path, bytes] = {}
    for count in counts:
        own = [item for item in asked if not graded or len(item.options) == count]
        suffix = f"-{count}-outputs" if len(counts) > 1 else ""
        tasks = [_task(ratings, item, order) for item in own]
        document = escape_json(json.dumps(tasks, indent=1, ensure_ascii=False))
        files[out / f"tasks{suffix}.json"] = f"{document}\n".encode()
        files[out / f"config{suffix}.xml"] = _form(ratings.study.kind, count).encode()
    out.mkdir(parents=True, exist_ok=True)
    replace_files(out, files)
    return list(files)


def _task(ratings: Ratings, item: Item, order: Order) -> dict[str, Any]:
    kind = ratings.study.kind
    shown = order.shown(item, ratings.study.annotators[0], "item")
    data: dict[str, Any] = {
        "item": item.item,
        "shown": list(shown),
        "question_html": _html(ratings, item.question),
    }
    if kind in ("pair", "caption"):
        places = [("first", "second").index(str(side)) for side in shown]
        for side, place in zip(("left", "right"), places, strict=True):
            data[f"{side}_html"] = _html(ratings, item.options[place].parts)
    elif kind == "grades":
        for number, place in enumerate(map(int, shown)):
            data[f"output_{number}_html"] = _html(ratings, item.options[place].parts)
    elif kind == "verify":
        offered = [option_name(option) for option in item.options]
        data["names"] = _choices_of(offered)
        data["others"] = _choices_of(n for n in ratings.study.names if n not in offered)
    return {"data": data}


def _choices_of(names: Iterable[str]) -> list[dict[str, str]]:
    """Names to tick; `value` comes back as it is, `html` is shown."""
    return [{"value": name, "html": _escaped(name)} for name in names]


def _html(ratings: Ratings, parts: Sequence[Part]) -> str:
    return "".join(
        f'<p style="white-space: pre-wrap">{_escaped(part.text)}</p>'
        if part.text is not None
        else f'<img alt="" style="max-width: 100%" src="{_data_url(ratings, str(part.image))}">'
        for part in parts
    )


def _escaped(text: str) -> str:
    return html.escape(visible(text))


def _data_url(ratings: Ratings, digest: str) -> str:
    ratings.image(digest)  # raises where it is damaged, or another
    try:
        data = read_regular(ratings.image_path(digest), _MOST_IMAGE)
    except OSError as error:
        raise DatasetError(f"{ratings.image_path(digest)}: {error.strerror or error}") from error
    return f"data:image/webp;base64,{b64encode(data).decode('ascii')}"


def _form(kind: Task, count: int) -> str:
    """The labeling configuration. count: of outputs to grade."""
    lines = ["<View>", '  <HyperText name="question" value="$question_html"/>']
    if kind in ("pair", "caption"):
        lines += [
            '  <View style="display: grid; grid-template-columns: 1fr 1fr; gap: 2em">',
            '    <HyperText name="left" value="$left_html"/>',
            '    <HyperText name="right" value="$right_html"/>',
            "  </View>",
            *_single(VERDICT, "question", WINNERS if kind == "pair" else CHOICES, hotkeys=True),
        ]
    limits = f'min="1" max="{count}" required="true"'
    for number in range(count):
        lines += [
            f'  <Header value="Output {number + 1}"/>',
            f'  <HyperText name="output_{number}" value="$output_{number}_html"/>',
            *_single(f"{GRADE}{number}", f"output_{number}", GRADES, hotkeys=False),
            f'  <Header value="Rank of output {number + 1}, 1 for the best" size="5"/>',
            f'  <Number name="{RANK}{number}" toName="output_{number}" {limits}/>',
        ]
    if kind == "describe":
        lines.append(
            f'  <TextArea name="{TEXT}" toName="question" rows="8" maxSubmissions="1" '
            'required="true"/>'
        )
    if kind == "verify":
        for name, field in ((TICKED, "names"), (ADDED, "others")):
            lines.append(
                f'  <Choices name="{name}" toName="question" choice="multiple" value="${field}"/>'
            )
    return "\n".join([*lines, "</View>", ""])


def _single(name: str, of: str, values: Sequence[str], *, hotkeys: bool) -> list[str]:
    words = {"B": "Both are comparable"} if values is CHOICES else {}
    lines = [f'  <Choices name="{name}" toName="{of}" choice="single" required="true">']
    for number, value in enumerate(values, 1):
        shown = html.escape(words.get(value) or _WORDS.get(value) or value.capitalize())
        key = f' hotkey="{number}"' if hotkeys else ""
        lines.append(f'    <Choice alias="{value}" value="{shown}"{key}/>')
    return [*lines, "  </Choices>"]


# -- people's answers as Label Studio exports them (JSON), taken into the votes of a study ---------
# Nothing in such a file is trusted: which item it is and in which order its options were shown
# come back in `data`, every answer has to be one of its item, and the order of the file counts for
# nothing.


PAGE = "label-studio/1"

MOST_CHARACTERS = 20_000
"""Of a description."""

_MOST_SECONDS = 86_400.0

Fields = Mapping[str, Any]


@dataclass
class ImportedAnswers:
    """What became of a file of answers.

    votes: that were added, in the order of their times.
    known: that were imported before. cancelled: that their annotator took back or skipped.
    unknown: for items that the study does not have.
    invalid: that are no answer to their item. first_fault: the first of these.
    """

    votes: list[Vote] = field(default_factory=list)
    known: int = 0
    cancelled: int = 0
    unknown: int = 0
    invalid: int = 0
    first_fault: str = ""

    @property
    def lines(self) -> list[str]:
        """A sentence for each kind that there is, for people."""
        counts = {
            "votes are added": len(self.votes),
            "were imported before": self.known,
            "were cancelled in Label Studio and are left out": self.cancelled,
            "are for items that the study does not have and are left out": self.unknown,
            f"are no answer to their item and are left out ({self.first_fault})": self.invalid,
        }
        lines = [f"{count} answers {words}" for words, count in counts.items() if count]
        return [line.replace("answers votes", "votes") for line in lines] or ["no answer is there"]


def import_label_studio(
    ratings: Ratings, votes: Votes, path: Path, annotators: Mapping[str, str]
) -> ImportedAnswers:
    """Add the answers of a JSON export of Label Studio to the votes of a study.

    annotators: Label Studio's number or address of a user -> annotator of the study; users whose
        own names are annotators need none.
    Importing a file again adds nothing. Raises DatasetError for a file that is none or of another
    study and, before anything is written, for users who are no annotators; WriteError.
    """
    check_annotators(ratings, annotators.values())
    document = _read_tasks(path)
    done = {vote.key for own in votes.records.values() for vote in own}
    imported = ImportedAnswers()
    strangers: dict[str, None] = {}
    for data, annotation in _annotations(document):
        user = _user(annotation.get("completed_by"))
        name = annotators.get(user, user)
        item = _item(ratings, data)
        if annotation.get("was_cancelled"):
            imported.cancelled += 1
        elif item is None:
            imported.unknown += 1
        elif name not in ratings.study.annotators:
            strangers.setdefault(user)
        else:
            _take(imported, ratings, item, name, data, annotation, done)
    if imported.unknown and not (imported.votes or imported.known or imported.invalid or strangers):
        raise DatasetError(
            f"{path}: none of its {imported.unknown} answers is for an item of {ratings.path}"
        )
    if strangers:
        users = [one_line(user, 60) for user in strangers]
        raise DatasetError(
            f"{path}: Label Studio's users {', '.join(users)} are none of the annotators"
            f" {', '.join(ratings.study.annotators)}: say who is who with "
            f"--annotator {users[0]}=NAME"
        )
    imported.votes.sort(key=lambda vote: vote.at)
    _append(imported.votes, ratings)
    return imported


def _read_tasks(path: Path) -> list[object]:
    document: object = read_json(path)
    if not isinstance(document, list):
        raise DatasetError(f"{path}: the JSON export of Label Studio is a list of tasks")
    if document and not any(isinstance(t, dict) and "annotations" in t for t in document):
        raise DatasetError(
            f"{path}: no task has annotations; export as JSON, and not as JSON-MIN or CSV"
        )
    return document


def _append(votes: Sequence[Vote], ratings: Ratings) -> None:
    """Add votes to the files of their annotators, in this order. Raises WriteError."""
    for name in ratings.study.annotators:
        own = [vote for vote in votes if vote.annotator == name]
        if own:
            file = VoteFile(ratings.vote_path(name))
            for vote in own:
                file.append(vote)
            file.close()


def _annotations(document: Sequence[object]) -> Iterator[tuple[Fields, Fields]]:
    for task in document:
        data = task.get("data") if isinstance(task, dict) else None
        given = task.get("annotations") if isinstance(task, dict) else None
        for annotation in given if isinstance(given, list) else ():
            if isinstance(annotation, dict):
                yield data if isinstance(data, dict) else {}, annotation


def _user(completed_by: object) -> str:
    """The number or the address of a user, as exports write one or the other."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    return str(completed_by)


def _item(ratings: Ratings, data: Fields) -> Item | None:
    digest = data.get("item")
    return ratings.items.get(digest) if isinstance(digest, str) else None


def _take(
    imported: ImportedAnswers,
    ratings: Ratings,
    item: Item,
    name: str,
    data: Fields,
    annotation: Fields,
    done: set[str],
) -> None:
    """Read one answer; it is added, or counted."""
    kind = ratings.study.kind
    result = annotation.get("result")
    values = {
        str(entry.get("from_name")): entry["value"]
        for entry in (result if isinstance(result, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("value"), dict)
    }
    try:
        content = canonical_json([item.item, name, annotation.get("id"), data.get("shown"), values])
        vote = Vote(
            task=kind,
            item=item.item,
            annotator=name,
            key=digest_text(f"label studio {content}")[:32],
            kind=item.kind if item.kind != "practice" else "item",
            page=PAGE,
            seconds=_seconds(annotation.get("lead_time")),
            at=_time(annotation.get("updated_at") or annotation.get("created_at")),
            shown=_shown(data.get("shown")),
            **_answer(kind, item, values, _shown(data.get("shown"))),
        )
        fault = fault_of(vote, ratings.study, item)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        fault = f"its fields are not those of the task {kind}: {one_line(str(error), 80)}"
    if fault:
        imported.invalid += 1
        imported.first_fault = imported.first_fault or fault
    elif vote.key in done:
        imported.known += 1
    else:
        done.add(vote.key)
        imported.votes.append(vote)


def _answer(
    kind: Task, item: Item, values: Mapping[str, Fields], shown: tuple[str | int, ...]
) -> dict[str, Any]:
    """The fields of a vote. Raises ValueError, TypeError, KeyError and IndexError for nonsense."""
    if kind in ("pair", "caption"):
        (verdict,) = map(_text, values[VERDICT]["choices"])
        winner, tie = un_swapped(kind, verdict, shown) or ("", None)
        return {"verdict": verdict, "winner": winner, "tie": tie}
    if kind == "grades":
        places = [int(place) for place in shown]
        grades = {
            str(place): _text(values[f"{GRADE}{number}"]["choices"][0]).lower()
            for number, place in enumerate(places)
        }
        by_rank: dict[int, list[int]] = {}
        for number, place in enumerate(places):
            by_rank.setdefault(int(values[f"{RANK}{number}"]["number"]), []).append(place)
        ranking = tuple(
            own[0] if len(own) == 1 else tuple(own) for _, own in sorted(by_rank.items())
        )
        return {"grades": grades, "ranking": ranking}
    if kind == "describe":
        given = values[TEXT]["text"]
        text = _text(given[0] if isinstance(given, list) else given)[:MOST_CHARACTERS]
        return {"text": text, "words": len(text.split())}
    offered = [option_name(option) for option in item.options]
    ticked = [_text(name) for name in values.get(TICKED, {}).get("choices", [])]
    added = [_text(name) for name in values.get(ADDED, {}).get("choices", [])]
    if set(ticked) - set(offered):
        raise ValueError("a ticked name was not offered")
    return {
        "ticked": tuple(name for name in offered if name in ticked),
        "unticked": tuple(name for name in offered if name not in ticked),
        "added": tuple(added),
    }


def _shown(value: object) -> tuple[str | int, ...]:
    if not isinstance(value, list) or not all(type(entry) in (str, int) for entry in value):
        raise ValueError("data.shown is no list of options")
    return tuple(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, got {type(value).__name__}")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return min(max(float(value), 0.0), _MOST_SECONDS)


def _time(value: object) -> str:
    """A time in ISO 8601 of UTC; now where the file has none."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        time = datetime.now(UTC)
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
