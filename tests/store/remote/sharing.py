"""Runs that share: results that one computes and another looks for."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.store import Result, Store, StoredResult
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.remotes import Location
from pytest_cepbench.store.remote.sync import inspect_objects, pull
from tests.store.filling import picture, results_of
from tests.store.strategies import same

PROVENANCE = {"model": "a" * 16, "device": "cpu"}


def compute(store: Store, numbers: range) -> dict[str, Result]:
    """Put results and images of these numbers, as a run does."""
    results = results_of(numbers)
    for i in numbers:
        store.put_artifact(picture(i))
    store.put([StoredResult(key, result, PROVENANCE) for key, result in results.items()])
    return results


def published(folder: Path, place: Location, numbers: range) -> dict[str, Result]:
    """Let a run with a store in this folder publish them."""
    with Store(folder, publish=place) as store:
        results = compute(store, numbers)
    assert (store.remarks, store.damage) == ([], [])
    return results


def check_pull(folder: Path, place: Location) -> None:
    """Pull what runs published into another store, twice.

    folder: for the local stores.
    """
    published(folder / "early", place, range(1))
    results = published(folder / "first", place, range(4))
    objects = open_objects(place, "test", writing=False)
    assert objects is not None
    with Store(folder / "second") as store:
        for taken, images, there in ((12, 4, 0), (0, 0, 12)):
            merged = pull(store, objects)
            assert (merged.results, merged.images, merged.present) == (taken, images, there)
            assert not merged.refused
        stored = store.get(results)
        assert all(same(stored[key], results[key]) for key in results)
        assert store.get_artifact(picture(3).digest) is not None
    seen = inspect_objects(objects)
    assert (seen.results, seen.images, seen.sound) == (12, 4, True)
    objects.close()
