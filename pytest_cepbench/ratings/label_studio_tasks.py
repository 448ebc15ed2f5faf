"""A study as tasks for Label Studio, with the form that its pages need.

What models wrote is escaped, since Label Studio shows the fields as HTML; images are in the tasks
themselves, so that no file name says where they come from. Tasks are in the order of their digests.
"""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.escapes import escape_json, visible
from pytest_cepbench.files import read_regular
from pytest_cepbench.ratings.folder import Ratings
from pytest_cepbench.ratings.order import Order
from pytest_cepbench.ratings.records import (
    CHOICES,
    GRADES,
    Item,
    Part,
    Task,
    option_name,
)
from pytest_cepbench.replacement import replace_files

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
