"""Files as other tools write them, and what a replay gives back of them."""

from __future__ import annotations

import csv
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.datasets.sample import Sample
from tests.datasets.opening.files import png

picture = png


def coded(grey: int) -> str:
    """The same in base64."""
    return b64encode(picture(grey)).decode()


def put(root: Path, *names: str) -> Path:
    """Pictures of grey 0, 1, 2, ... under these names; returns the root."""
    for grey, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(grey))
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
