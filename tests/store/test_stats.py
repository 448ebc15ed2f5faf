"""What a store says of itself: the models whose results it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.store.maintenance import model_of, models_in
from pytest_cepbench.store.readonly import ReadonlyStore
from tests.store.filling import fill


def test_the_models_of_a_store(tmp_path: Path) -> None:
    """Each once; results that name no model have none."""
    fill(tmp_path / "store", range(2), "a" * 16)
    fill(tmp_path / "store", range(2, 4), "b" * 16)
    fill(tmp_path / "store", range(4, 6))
    with ReadonlyStore(tmp_path / "store", "store") as reader:
        assert models_in(reader.read) == {"a" * 16, "b" * 16}


@pytest.mark.parametrize(
    "provenance", ["", "{}", "[1]", '{"model": 3}', "null", "[" * 5000], ids=lambda text: text[:12]
)
def test_a_provenance_without_a_model(provenance: str) -> None:
    """It has no influence on a result and may be anything."""
    assert model_of(provenance) is None
