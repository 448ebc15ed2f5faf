"""Tables of small images, and suites that read them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import Suite, load_suite
from tests.artifacts.files import encoded


def png(color: int) -> bytes:
    """An image that differs for every color, 0 to 65,535."""
    return encoded(Image.new("RGB", (4, 4), (color % 256, color // 256, 9)), "PNG")


def image_table(count: int, first: int = 0, **columns: Sequence[Any]) -> pa.Table:
    """A table with ids `s000`, ... and images, as `datasets` has them, and further columns."""
    rows = range(first, first + count)
    images = [{"bytes": png(row), "path": f"{row}.png"} for row in rows]
    return pa.table({"id": [f"s{row:03}" for row in rows], "image": images, **columns})


def write_parquet(path: Path, table: pa.Table, group: int = 4) -> Path:
    """The table in row groups of a few rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """A webdataset shard."""
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def suite_of(folder: Path, data: str = 'loader = "folder"', start: str = "image") -> Suite:
    """A suite with these lines under `[data]`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.toml").write_text(
        f'name = "s"\nversion = 1\n[data]\n{data}\n[chain]\nstart = "{start}"\niterations = 1\n'
        '[prompts]\ndescribe = "d"\n[metrics.gc]\n',
        encoding="utf-8",
    )
    return load_suite(folder / "suite.toml")


def load(
    tmp_path: Path,
    place: Path | str,
    data: str = 'loader = "folder"',
    most: int | None = None,
    run: Path | None = None,
) -> Dataset:
    """The data set of a place, as a suite with these lines under `[data]` loads it."""
    suite = suite_of(tmp_path / "suite", data)
    return load_data(suite, {suite.table.data.loader: place}, most, run)


def contents(dataset: Dataset) -> dict[str, tuple[tuple[str, ...], str | None, str]]:
    """Categories, text and digest of the pixels of every sample by id."""
    return {
        sample.id: (
            sample.categories,
            sample.text,
            sample.image.load().digest if sample.image is not None else "",
        )
        for sample in dataset.samples
    }
