"""Data sets, chains and answers as other tools write them, and what a replay gives back."""

from __future__ import annotations

import csv
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.datasets.opening.questions import META_TOPICS, TASKS
from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.datasets.sample import Sample
from tests.artifacts.files import encoded

Step = Mapping[str, Any]


def png(grey: int) -> bytes:
    """A PNG file that is recognised by its grey."""
    return encoded(Image.new("RGB", (3, 2), (grey,) * 3), "PNG")


picture = png


def put_lines(path: Path, entries: Iterable[object]) -> Path:
    """A JSON Lines file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), "utf-8")
    return path


def question(uid: str, inputs: Sequence[Step] = (), outputs: Sequence[Step] = ()) -> dict[str, Any]:
    """A record as the release writes it; one step with an image each where none are given."""
    task = TASKS[uid[:4]]
    return {
        "total_uid": uid,
        "meta_task_id": str(int(uid[:2])),
        "meta_task_name": META_TOPICS[uid[:2]],
        "subtask_id": str(int(uid[2:4])),
        "subtask_name": task,
        "data_id": str(int(uid[4:])),
        "conversations": [
            {"input": list(inputs) or [step(uid, "i-1", "<BEGIN> How does it go on? <image>")]},
            {"output": list(outputs) or [step(uid, "o-1", "It ends well. <image>")]},
        ],
    }


def step(uid: str, image: str | None, text: str) -> Step:
    """A step of a question; image: such as `i-1`."""
    path = None if image is None else f"./images/{TASKS[uid[:4]]}/{int(uid[4:])}-{image}.jpg"
    return {"image": path, "text": text}


def put_questions(root: Path, records: Iterable[Mapping[str, Any]], split: str = "test") -> Path:
    """The release's folder with these records and all images that they name; returns it."""
    records = list(records)
    put_lines(root / f"{split}_data.jsonl", records)
    for record in records:
        for side in record["conversations"]:
            for steps in side.values():
                for name in filter(None, (part["image"] for part in steps)):
                    file = root / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(png(len(name)))
    return root


def put_answer(
    folder: Path, uid: str, steps: Sequence[Mapping[str, Any]], ending: str = ".json", **more: Any
) -> Path:
    """An answer's file, without images; more: replaces fields of the record, None removes one."""
    folder.mkdir(parents=True, exist_ok=True)
    record = question(uid)
    record["conversations"][1]["output"] = list(steps)
    record = {name: value for name, value in (record | more).items() if value is not None}
    path = folder / f"{uid}{ending}"
    path.write_text(json.dumps(record, indent=4), "utf-8")
    return path


def coded(grey: int) -> str:
    """The same in base64."""
    return b64encode(png(grey)).decode()


def put(root: Path, *names: str) -> Path:
    """Pictures of grey 0, 1, 2, ... under these names; returns the root."""
    for grey, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(grey))
    return root


def put_table(path: Path, rows: list[list[str]]) -> Path:
    """A CSV, or a TSV by its suffix; the first row is the header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter="\t" if path.suffix == ".tsv" else ",").writerows(rows)
    return path


def open_chains(place: Path, layout: str | None = None) -> Replay:
    """The chains at a place, whose layout is found by looking where none is named."""
    replay = open_replay(str(place), layout)
    assert isinstance(replay, Replay)
    return replay


def held(replay: Replay, name: str, start: Modality, generation: int) -> str | int | None:
    """What is recorded of a sample: a text, the grey of its image, or None."""
    result = replay.artifact(Sample(name, ("c",)), start, generation)
    if result is None or isinstance(result, str):
        return result
    return int(result.load().pixels[0, 0, 0])


def recorded(replay: Replay) -> Mapping[Modality, list[int]]:
    """The generations up to 25 that a replay says it has."""
    starts: tuple[Modality, Modality] = ("image", "text")
    return {start: [g for g in range(26) if replay.records(start, g)] for start in starts}
