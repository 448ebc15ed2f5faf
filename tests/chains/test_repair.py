"""Images that the store lost: made again when they are needed, with the same numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    SmallDescriber,
    SmallEncoder,
    SmallGenerator,
    grow_and_trace,
    inputs_of,
    make_runners,
    outcomes,
    samples,
)

OTHER_ENCODER: Any = {"encoder": {"fingerprint": "another encoder"}}


def spoil(path: Path, how: str) -> None:
    """Damage or delete an image."""
    data = path.read_bytes()
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if how == "cut" else b"no image")


def test_an_image_that_no_step_needs_is_not_missed(store: Store) -> None:
    """Texts and vectors are there: a second run gives the same without any image."""
    first = outcomes(grow_and_trace(PLAN, samples(3), make_runners(store)))
    shutil.rmtree(store.root / "images")
    describer, generator, encoder = SmallDescriber(), SmallGenerator(), SmallEncoder()
    assert (
        outcomes(
            grow_and_trace(PLAN, samples(3), make_runners(store, describer, generator, encoder))
        )
        == first
    )
    assert inputs_of(describer, generator, encoder) == 0


@pytest.mark.parametrize("how", ["deleted", "cut", "text"])
@pytest.mark.parametrize("generation", [2, 4])
def test_a_lost_image_is_made_again(store: Store, generation: int, how: str) -> None:
    """Another encoder needs it: only its own step is repeated, and the numbers are the same."""
    traces = grow_and_trace(PLAN, samples(3), make_runners(store))
    with Store(store.root.with_name("untouched")) as untouched:
        expected = outcomes(
            grow_and_trace(PLAN, samples(3), make_runners(untouched, only=OTHER_ENCODER))
        )
    spoil(store.artifact_path(traces[1].chain.links[generation].digest), how)
    describer, generator = SmallDescriber(), SmallGenerator()
    actual = outcomes(
        grow_and_trace(
            PLAN, samples(3), make_runners(store, describer, generator, only=OTHER_ENCODER)
        )
    )
    assert actual == expected
    assert (inputs_of(describer), inputs_of(generator)) == (0, 1)
    assert any("damaged or gone" in note for note in store.damage)


def test_a_lost_image_is_made_again_for_another_describer(store: Store) -> None:
    """The same where a step starts from it instead of the encoder."""
    other: Any = {"describer": {"fingerprint": "another describer"}}
    plan = replace(TEXT_PLAN, generations=2)
    first = outcomes(grow_and_trace(plan, samples(3), make_runners(store)))
    shutil.rmtree(store.root / "images")
    (store.root / "images").mkdir()
    assert outcomes(grow_and_trace(plan, samples(3), make_runners(store, only=other))) == first


@pytest.mark.parametrize("iterations", [1, 6])
def test_all_images_are_made_again(store: Store, iterations: int) -> None:
    """All were deleted to save space: many batches and long chains are repaired too."""
    plan = replace(PLAN, generations=2 * iterations)
    small: Any = {"batch_size": 2}
    grow_and_trace(plan, samples(5), make_runners(store, every=small))
    with Store(store.root.with_name("untouched")) as untouched:
        expected = outcomes(
            grow_and_trace(plan, samples(5), make_runners(untouched, only=OTHER_ENCODER))
        )
    shutil.rmtree(store.root / "images")
    (store.root / "images").mkdir()
    generator = SmallGenerator()
    runners = make_runners(store, generator=generator, every=small, only=OTHER_ENCODER)
    assert outcomes(grow_and_trace(plan, samples(5), runners)) == expected
    assert inputs_of(generator) == 5 * iterations
