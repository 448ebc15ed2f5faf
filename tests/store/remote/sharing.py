"""Runs that share: results that one computes and another looks for."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.store import Result, Store, StoredResult
from pytest_cepbench.store.remote.remotes import Location
from tests.store.filling import picture, results_of

PROVENANCE = {"model": "a" * 16, "device": "cpu"}


def compute(store: Store, numbers: range) -> dict[str, Result]:
    """Put results and images of these numbers, as a run does."""
    results = results_of(numbers)
    for i in numbers:
        store.put_image(picture(i))
    store.put([StoredResult(key, result, PROVENANCE) for key, result in results.items()])
    return results


def published(folder: Path, place: Location, numbers: range) -> dict[str, Result]:
    """Let a run with a store in this folder publish them."""
    with Store(folder, publish=place) as store:
        results = compute(store, numbers)
    assert (store.remarks, store.damage) == ([], [])
    return results
