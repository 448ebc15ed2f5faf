"""Making a store smaller: what is old, too much, or of no baseline goes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import INDEX, ReadonlyStore
from pytest_cepbench.store.maintenance import (
    Collection,
    GcCriteria,
    choose,
    collect,
    model_of,
)
from tests.store.filling import age, age_images, fill, key_of, picture, results_of

OLD, NEW = "a" * 16, "b" * 16


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Results 0 to 3 of one model, stored 9 to 6 days ago; 4 and 5 of another, of today; 6 of none.

    All images are old.
    """
    fill(tmp_path, range(4), OLD)
    fill(tmp_path, range(4, 6), NEW)
    fill(tmp_path, range(6, 7))
    for number in range(4):
        for key in results_of(range(number, number + 1)):
            age(tmp_path, key, 9 - number)
    age_images(tmp_path)
    return tmp_path


def plan(root: Path, criteria: GcCriteria) -> Collection:
    """What would go."""
    with ReadonlyStore(root) as reader:
        return choose(root, reader.read, criteria)


def numbers_of(going: Collection) -> list[int]:
    """Which numbers go, whole."""
    keys = {entry.key for entry in going.entries}
    numbers = [n for n in range(10) if results_of(range(n, n + 1)).keys() <= keys]
    assert len(keys) == 3 * len(numbers)
    return numbers


def test_what_was_not_used_for_long(root: Path) -> None:
    """By the day of its last use, which a hit makes young again; never used counts from storing."""
    assert numbers_of(plan(root, GcCriteria(unused_for=8))) == [0, 1]
    assert numbers_of(plan(root, GcCriteria(unused_for=10))) == []
    with Store(root) as store:
        store.get(results_of(range(1)))
    assert numbers_of(plan(root, GcCriteria(unused_for=8))) == [1]


def test_the_least_recently_used_goes_until_the_rest_fits(root: Path) -> None:
    """Images count; what stays is no more than was asked."""
    size = plan(root, GcCriteria(unused_for=1000)).kept_bytes
    assert plan(root, GcCriteria(max_size=size)).entries == ()
    assert len(plan(root, GcCriteria(max_size=size - 1)).entries) == 1
    whole = plan(root, GcCriteria(max_size=10**9))
    assert (numbers_of(whole), whole.bytes) == ([], 0)
    going = plan(root, GcCriteria(max_size=whole.kept_bytes * 3 // 5))
    assert numbers_of(going) == [0, 1, 2]
    assert going.kept_bytes <= whole.kept_bytes * 3 // 5
    assert going.kept_bytes + going.bytes == whole.kept_bytes
    assert numbers_of(plan(root, GcCriteria(max_size=0))) == list(range(7))


def test_baselines_keep_what_their_models_made(root: Path) -> None:
    """Whatever age and size say; by themselves they let go only what names another model."""
    needed = frozenset({OLD})
    assert numbers_of(plan(root, GcCriteria(unused_for=1, needed=needed))) == []
    assert numbers_of(plan(root, GcCriteria(max_size=0, needed=needed))) == [4, 5, 6]
    alone = plan(root, GcCriteria(needed=needed))
    assert (numbers_of(alone), alone.unnamed) == ([4, 5], 3)


def test_what_goes_is_gone_and_the_rest_is_whole(root: Path) -> None:
    """Rows, images and days of use; the file gets smaller; another choice finds nothing more."""
    with Store(root) as store:
        store.put([StoredResult(key_of("large"), "x" * 300_000, {"model": OLD})])
        store.get([key_of("large"), key_of("text 4")])
    age(root, key_of("large"), 9)
    size = (root / INDEX).stat().st_size
    criteria = GcCriteria(unused_for=5)
    going = plan(root, criteria)
    with Store(root) as store:
        assert collect(store, going) == (going.bytes, 0, True)
        kept = results_of(range(4, 7))
        assert store.get([*results_of(range(7)), key_of("large")]).keys() == kept.keys()
        for number in range(7):
            image = store.get_artifact(picture(number).digest)
            assert (image is not None) == (number > 3)
        assert store.damage == []
    assert (root / INDEX).stat().st_size < size - 250_000
    assert plan(root, criteria).entries == ()


def test_images_that_no_result_refers_to(root: Path) -> None:
    """Old ones go; a young one may be of a result that is about to be stored."""
    with Store(root) as store:
        for seed in (20, 21):
            store.put_artifact(picture(seed))
        age_images(root)
        store.put_artifact(picture(21))  # wanted again: young
    going = plan(root, GcCriteria(unused_for=1000))
    assert going.unused == (picture(20).digest,)
    with Store(root) as store:
        collect(store, going)
        assert store.get_artifact(picture(20).digest) is None
        assert store.get_artifact(picture(21).digest) is not None


def test_an_image_that_is_still_referred_to_stays(root: Path) -> None:
    """Two results can share one; the second may come between the choice and the deletion."""
    going = plan(root, GcCriteria(unused_for=9))
    with Store(root) as store:
        late = results_of(range(1))[key_of("image 0")]
        store.put([StoredResult(key_of("late"), late)])
        collect(store, going)
        assert store.get([key_of("late"), key_of("image 0")]).keys() == {key_of("late")}
        assert store.get_artifact(picture(0).digest) is not None


def test_beside_others_the_index_keeps_its_size(root: Path) -> None:
    """Rewriting it would make them wait; they go on, and see what is gone as never stored."""
    with Store(root) as store:
        store.put([StoredResult(key_of("large"), "x" * 300_000, {"model": OLD})])
    age(root, key_of("large"), 9)
    size = (root / INDEX).stat().st_size
    with Store(root) as other, Store(root) as store:
        assert other.get([key_of("text 0")])
        *_, compacted = collect(store, plan(root, GcCriteria(unused_for=1)))
        assert not compacted
        assert other.get([key_of("text 0"), key_of("text 4")]).keys() == {key_of("text 4")}
        assert (root / INDEX).stat().st_size >= size
        again = StoredResult(key_of("text 0"), "computed again")
        assert other.put([again]) == {again.key: "computed again"}
    assert not artifact_path(root, picture(0).digest).exists()


@pytest.mark.parametrize(
    "provenance", ["", "{}", "[1]", '{"model": 3}', "null", "[" * 5000], ids=lambda text: text[:12]
)
def test_a_provenance_without_a_model(provenance: str) -> None:
    """It has no influence on a result and may be anything."""
    assert model_of(provenance) is None
