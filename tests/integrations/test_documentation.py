"""docs/training-loop.md has every setting of a gate and of a loop's gate, with its default."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from pytest_cepbench.integrations import Gate, TrainingGate
from pytest_cepbench.integrations.tracking import values_of
from tests.docs.markdown import DOCS, column, tables
from tests.integrations.test_tracking import VERDICT

PAGE = DOCS / "training-loop.md"


@pytest.mark.parametrize(("index", "kind"), [(1, Gate), (2, TrainingGate)])
def test_settings_are_documented_with_their_defaults(index: int, kind: type) -> None:
    """Every field in its order; a default that is code is that of the code."""
    rows = tables(PAGE, "What a gate does")[index]
    fields = [field for field in dataclasses.fields(kind) if field.init]

    assert column(rows) == [field.name for field in fields]
    for row, field in zip(rows, fields, strict=True):
        if field.default not in (None, dataclasses.MISSING, sys.executable) and "`" in row[1]:
            assert row[1].strip("`") == str(field.default)


def test_values_for_trackers_are_documented() -> None:
    """Every name that a tracker is given."""
    page = PAGE.read_text(encoding="utf-8")
    names = [name.replace("shapes/overall/gc", "SUITE/PART/METRIC") for name in values_of(VERDICT)]

    for name in names:
        ending = f"/{name.rpartition('/')[2]}`"
        assert f"`{name}`" in page or f"`{ending}" in page
