"""Files that a model reads at its first answers: one that changed meanwhile stores nothing."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.chains import ChainModels, RoleRunner
from pytest_cepbench.chains.growth import grow_generation, start_chains
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.datasets.sample import FileImage, Sample
from pytest_cepbench.errors import IdentityError, ImageError
from pytest_cepbench.models.binding import CoveredFiles
from pytest_cepbench.store import Store
from tests.artifacts.files import encoded, noise
from tests.chains.roles import PLAN, SmallDescriber, bound, make_runners


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """The file that the fingerprint covers."""
    path = tmp_path / "weights"
    path.write_text("A")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty one."""
    return Store(tmp_path / "store")


def runner(weights: Path, store: Store, does: Callable[[], object]) -> RoleRunner:
    """A describer of batches of two that does something at each of them."""
    files = CoveredFiles(
        weights, lambda path: sha256(path.read_bytes()).hexdigest(), lambda digest: digest(weights)
    )
    assert files.fingerprint
    describer = SmallDescriber(batch=lambda _: does())
    return RoleRunner(bound("describer", describer, files=files, batch_size=2), store)


def describe(role: RoleRunner, count: int = 4) -> None:
    """Ask for so many texts."""
    steps = [
        # mypy does not see the default
        Step(f"{i:064x}", 0, lambda i=i: Image.fromarray(noise(4, 4, seed=i)))  # type: ignore[misc]
        for i in range(count)
    ]
    role.ask("describe", steps, "describe")


def test_what_is_written_during_the_first_answers_is_refused(weights: Path, store: Store) -> None:
    """Either of the two may have been read, so nothing is stored."""
    role = runner(weights, store, lambda: weights.write_text("B"))
    with pytest.raises(IdentityError, match="while the first answers were made"):
        describe(role)
    assert len(store) == 0
    with pytest.raises(IdentityError, match="before the first answers were made"):
        describe(role)
    assert len(store) == 0


def test_an_exception_of_half_a_file_is_told_as_what_it_is(weights: Path, store: Store) -> None:
    """It would be counted as a failure of the model otherwise."""

    def fail() -> None:
        weights.write_text("")
        raise OSError("unexpected end of file")

    with pytest.raises(IdentityError, match="while the first answers were made"):
        describe(runner(weights, store, fail))


def test_a_model_that_has_answered_is_left_alone(weights: Path, store: Store) -> None:
    """It has read what it needs: a trainer may go on."""
    calls: list[None] = []

    def write_later() -> None:
        calls.append(None)
        if len(calls) > 1:
            weights.write_text("B")

    describe(runner(weights, store, write_later))
    assert len(calls) == 2
    assert len(store) == 4


def test_a_photo_that_is_overwritten_after_it_was_digested_is_refused(
    store: Store, tmp_path: Path
) -> None:
    """Its answers would be stored as those to the photo before."""
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(Image.fromarray(noise(seed=1)), "PNG"))
    runners = make_runners(store)
    chains = start_chains(PLAN, [Sample("a", ("c",), image=FileImage(path))], store)
    store.artifact_cache.clear()
    path.write_bytes(encoded(Image.fromarray(noise(seed=2)), "PNG"))
    with pytest.raises(ImageError, match="a, generation 0: the image changed after the run had"):
        grow_generation(PLAN, 1, chains, ChainModels(runners.describer, runners.generator, store))
    assert len(store) == 0
