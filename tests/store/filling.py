"""Small stores, every kind of result that can be put into one, and equality over all of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import (
    Detection,
    Detections,
    Failure,
    ImageArtifact,
    Mask,
    digest_text,
)
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS
from pytest_cepbench.store import ArtifactRef, Result, Store, StoredResult
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.rows import packed, today
from tests.artifacts.files import noise


def key_of(name: str) -> str:
    """A key as chains have them."""
    return digest_text(name)


def picture(seed: int) -> ImageArtifact:
    """A small image; another seed gives another one."""
    return ImageArtifact(noise(seed=seed))


def results_of(numbers: range) -> dict[str, Result]:
    """A text, a vector and an image for each number, by key."""
    by_key: dict[str, Result] = {}
    for i in numbers:
        by_key[key_of(f"text {i}")] = f"a text about {i}"
        by_key[key_of(f"vector {i}")] = np.arange(4, dtype=np.float32) + i
        by_key[key_of(f"image {i}")] = ArtifactRef(picture(i).digest)
    return by_key


def fill(folder: Path, numbers: range, model: str | None = None) -> dict[str, Result]:
    """Put these results into the store in a folder, with their images."""
    results = results_of(numbers)
    provenance = {} if model is None else {"model": model}
    with Store(folder) as store:
        for i in numbers:
            store.put_artifact(picture(i))
        store.put([StoredResult(key, result, provenance) for key, result in results.items()])
    return results


@contextmanager
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    """The database of a store that no process has open, to spoil it."""
    with closing(sqlite3.connect(folder / INDEX)) as connection, connection:
        yield connection


PAGE = 4096
"""Bytes of a page of SQLite's."""


def destroy(index: Path, text: bytes) -> None:
    """Destroy the page on which a text begins."""
    with index.open("r+b") as stream:
        stream.seek(index.read_bytes().index(text) // PAGE * PAGE)
        stream.write(b"\xff" * PAGE)


def age(folder: Path, keys: Sequence[str], days: int) -> None:
    """Let results be stored so many days ago and not be used since."""
    seconds = (today() - days) * 86400.0 + 1
    row = "SELECT id FROM results WHERE key = ?"
    with database(folder) as connection:
        for key in map(packed, keys):
            connection.execute("UPDATE results SET created = ? WHERE key = ?", (seconds, key))
            connection.execute(f"DELETE FROM used WHERE id = ({row})", (key,))


def age_images(folder: Path) -> None:
    """Let all images be old."""
    for path in (folder / "images").rglob("*.webp"):
        os.utime(path, (1_000_000_000, 1_000_000_000))


def spoil_image(folder: Path, seed: int) -> Path:
    """Write another image under the name of this one."""
    path = artifact_path(folder, picture(seed).digest)
    path.write_bytes(artifact_path(folder, picture(seed + 1).digest).read_bytes())
    return path


PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
"""For texts: in a fresh checkout the first one builds a table of Unicode, which takes seconds on a
busy machine."""

KEYS = st.binary(min_size=32, max_size=32).map(bytes.hex)

TEXTS = st.text(st.characters(codec=None), max_size=40)

VECTORS = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)

PLACES = st.floats(allow_nan=False, allow_infinity=False)

BOXES = st.tuples(PLACES, PLACES, PLACES, PLACES).map(
    lambda box: (*map(min, box[:2], box[2:]), *map(max, box[:2], box[2:]))
)

MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)).map(
    Mask.from_array
)

DETECTIONS = st.lists(
    st.builds(
        Detection,
        query=TEXTS,
        score=st.floats(0.0, 1.0),
        box=BOXES,
        mask=st.none() | MASKS,
        color=st.none() | TEXTS,
    ),
    max_size=4,
).map(Detections.sort)

RESULTS: st.SearchStrategy[Result] = st.one_of(
    TEXTS,
    KEYS.map(ArtifactRef),
    VECTORS,
    DETECTIONS,
    st.builds(Failure, st.sampled_from(sorted(FAILURE_KINDS)), st.text(max_size=30)),
)


def same(first: Result, second: Result) -> bool:
    """Equal in kind and in every bit; NaN equals NaN."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and bool(np.array_equal(first, second, equal_nan=True))
    return type(first) is type(second) and bool(first == second)
