"""A data set of a million rows: listed and sampled in memory that does not grow with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.table_listing import CATEGORIES, SAMPLES, measure, write_shards

ROWS = 1_000_000

GROWTH = 32
"""MiB that a million rows may take over a thousand: 8 bytes for each, sorted, and noise."""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """As many samples as asked for, their images read, and hardly more memory than for few rows."""
    write_shards(tmp_path / "few", 1_000)
    write_shards(tmp_path / "many", ROWS)
    few = measure(tmp_path, tmp_path / "few", SAMPLES)
    many = measure(tmp_path, tmp_path / "many", SAMPLES)
    assert few["samples"] == many["samples"] == SAMPLES * CATEGORIES
    assert many["MiB"] - few["MiB"] < GROWTH
