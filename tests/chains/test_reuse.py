"""What is in the store is not computed again, and made again where it was lost."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image

from pytest_cepbench.artifacts import DECODER, ImageArtifact
from pytest_cepbench.chains import CallCounts, ChainPlan
from pytest_cepbench.chains.growth import look_ahead
from pytest_cepbench.datasets.sample import DrawnImage, FileImage, Sample
from pytest_cepbench.store import Result, Store, StoredResult
from tests.artifacts.files import encoded, noise
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    SmallDescriber,
    describe_image,
    grow_and_trace,
    make_runners,
    outcomes,
    samples,
)


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])
def test_nothing_is_computed_twice(plan: ChainPlan, tmp_path: Path) -> None:
    """A second run asks no model and loads none, in another process on the same store. Device,
    batch and weights are noted with a result, to explain a differing last bit. An image that no
    step needs is not missed: texts and vectors are there.
    """
    device = {"provenance": {"device": "cuda:1"}}
    with Store(tmp_path) as store:
        first = outcomes(grow_and_trace(plan, samples(5), make_runners(store, every=device)))
        notes = store.index.read("SELECT text FROM provenances")
        assert notes == [('{"batch": "5", "device": "cuda:1", "model": "weights-1"}',)]
    with Store(tmp_path) as store:
        runners = make_runners(store)
        assert outcomes(grow_and_trace(plan, samples(5), runners)) == first
    assert runners.describer.tally == CallCounts(hits=10)
    assert runners.generator.tally == CallCounts(hits=10)
    assert runners.encoder.tally == CallCounts(hits=15)
    with Store(tmp_path) as store:
        shutil.rmtree(store.root / "images")
        runners = make_runners(store)
        assert outcomes(grow_and_trace(plan, samples(5), runners)) == first
    assert runners.asked == [0, 0, 0]


def test_a_longer_run_computes_only_what_is_new(store: Store) -> None:
    """More samples and more iterations go on from what is there."""
    grow_and_trace(PLAN, samples(3), make_runners(store))
    runners = make_runners(store)
    grow_and_trace(replace(PLAN, generations=6), samples(5), runners)
    assert runners.asked == [3 * 1 + 2 * 3, 3 * 1 + 2 * 3, 3 * 1 + 2 * 4]


def test_another_checkpoint_shares_what_the_fixed_roles_saw(store: Store) -> None:
    """A new describer that says the same leaves the others no work; seeds are encoded once."""
    grow_and_trace(PLAN, samples(3), make_runners(store))
    for fingerprint, suffix, asked in [("same words", "", [6, 0, 0]), ("others", "!", [6, 6, 6])]:

        def tell(*seen: Any, suffix: str = suffix) -> str:
            return f"{describe_image(*seen)}{suffix}"

        weights = {"fingerprint": fingerprint}
        runners = make_runners(store, SmallDescriber(tell), only={"describer": weights})
        grow_and_trace(PLAN, samples(3), runners)
        assert runners.asked == asked


TWINS = [
    Sample(name, ("c",), image=DrawnImage(lambda: ImageArtifact(noise(seed=1))), text="same")
    for name in ("twin1", "twin2", "twin3")
]


def test_identical_samples_are_described_once_by_a_greedy_model(store: Store) -> None:
    """The same image, the same question, no seed: one answer, though their chains part later."""
    runners = make_runners(store)
    traces = grow_and_trace(replace(PLAN, generations=2), TWINS, runners)
    assert runners.asked == [1, 3, 1 + 3]
    links = [[link.digest for link in trace.chain.links] for trace in traces]
    assert len({(start, text) for start, text, _ in links}) == 1
    assert len({image for *_, image in links}) == 3


LENGTH = {"params": {"max_new_tokens": 8}}


@pytest.mark.parametrize(
    ("changes", "plan", "asked"),
    [
        # Other weights, another adapter or another parameter.
        ({"describer": {"fingerprint": "weights-2"}}, PLAN, "describer"),
        ({"generator": {"fingerprint": "weights-2"}}, PLAN, "generator"),
        ({"encoder": {"fingerprint": "weights-2"}}, PLAN, "encoder"),
        ({"describer": {"adapter": "test/2"}}, PLAN, "describer"),
        ({"generator": {"params": {"max_new_tokens": 9}}}, PLAN, "generator"),
        ({"encoder": {"params": {"temperature": 0.5}}}, PLAN, "encoder"),
        # Another question.
        ({}, replace(PLAN, describe="another prompt"), "describer"),
        ({}, replace(PLAN, generate="paint: {description}"), "generator"),
        ({}, replace(PLAN, seed=1), "describer"),
        ({}, replace(PLAN, seed=1), "generator"),
        # Batch shape, device, path and name decide nothing.
        ({"every": {"batch_size": 2}}, PLAN, None),
        ({"every": {"provenance": {"device": "cuda:1"}}}, PLAN, None),
        ({"every": {"spec": "the same, elsewhere"}}, PLAN, None),
        ({"every": {"what": "X"}}, PLAN, None),
    ],
    ids=str,
)
def test_answers_are_those_of_the_same_model_to_the_same_question(
    store: Store, changes: dict[Any, Any], plan: ChainPlan, asked: str | None
) -> None:
    """Where one of them differs its role is asked anew; what was stored stays."""
    roles = ("describer", "generator", "encoder")

    def run(plan: ChainPlan = PLAN, **changes: Any) -> tuple[dict[str, Any], list[int]]:
        every = LENGTH | changes.get("every", {})
        only: Any = {role: every | changes.get(role, {}) for role in roles}
        runners = make_runners(store, SmallDescriber(seeded=True), only=only)
        return outcomes(grow_and_trace(plan, samples(2), runners)), runners.asked

    first, _ = run()
    other, numbers = run(plan, **changes)
    if asked is None:
        assert (other, numbers) == (first, [0, 0, 0])
    else:
        assert numbers[roles.index(asked)] == (6 if asked == "encoder" else 4)
        assert run() == (first, [0, 0, 0])


def test_remembered_seeds_are_those_of_this_decoder(store: Store, tmp_path: Path) -> None:
    """Another version of Pillow may read a file as other pixels: it must not find these digests."""
    path = tmp_path / "a.png"
    path.write_bytes(encoded(Image.fromarray(noise()), "PNG"))
    os.utime(path, (1, 1))
    grow_and_trace(PLAN, [Sample("a", ("c",), image=FileImage(path))], make_runners(store))
    remembered = store.index.read("SELECT path, what FROM files")
    assert remembered == [(str(path), f"pixels {DECODER}")]
    assert DECODER.endswith(f"pillow/{PIL.__version__}")


OTHER_ENCODER: Any = {"encoder": {"fingerprint": "another encoder"}}


def test_what_a_role_cannot_have_given_is_made_again(store: Store) -> None:
    """A result of another kind, under a seal that fits, is damage as any other."""
    runners = make_runners(store)
    traces = grow_and_trace(PLAN, samples(1), runners)
    start, told, drawn, *_ = traces[0].chain.links
    wrong: dict[str, Result] = {
        str(told.key): np.ones(3, np.float32),
        str(drawn.key): "a text",
        runners.encoder.key("", 0, "image", start.digest): "a text",
    }
    store.forget(list(wrong), why="tried")
    store.put([StoredResult(key, result) for key, result in wrong.items()])
    again = make_runners(store)
    (pending,) = look_ahead(PLAN, samples(1), again.models(), None)
    assert len(pending.missing) == 4
    assert outcomes(grow_and_trace(PLAN, samples(1), again)) == outcomes(traces)
    assert again.asked == [1, 1, 1]
    roles = [note.rpartition(" ")[2] for note in store.damage[3:]]
    assert roles == ["describer", "generator", "encoder"]


def remake(store: Store, plan: ChainPlan, count: int, **every: Any) -> list[int]:
    """What is asked of describer and generator for another encoder, which needs the images."""
    with Store(store.root.with_name("untouched")) as untouched:
        whole = make_runners(untouched, only=OTHER_ENCODER)
        expected = outcomes(grow_and_trace(plan, samples(count), whole))
    runners = make_runners(store, every=every, only=OTHER_ENCODER)
    assert outcomes(grow_and_trace(plan, samples(count), runners)) == expected
    return runners.asked[:2]


@pytest.mark.parametrize(
    ("generation", "how"), [(2, "deleted"), (4, "deleted"), (4, "cut"), (4, "text")]
)
def test_a_lost_image_is_made_again(store: Store, generation: int, how: str) -> None:
    """Only its own step is repeated, and the numbers are the same."""
    traces = grow_and_trace(PLAN, samples(3), make_runners(store))
    path = store.artifact_path(traces[1].chain.links[generation].digest)
    data = path.read_bytes()
    path.unlink()
    if how != "deleted":
        path.write_bytes(data[: len(data) // 2] if how == "cut" else b"no image")
    assert remake(store, PLAN, 3) == [0, 1]
    assert any("damaged or gone" in note for note in store.damage)


def test_all_images_are_made_again(store: Store) -> None:
    """All were deleted to save space: many batches and long chains are repaired too, also where a
    step starts from an image instead of the encoder.
    """
    other: Any = {"describer": {"fingerprint": "another describer"}}
    plan = replace(TEXT_PLAN, generations=2)
    first = outcomes(grow_and_trace(plan, samples(3), make_runners(store)))
    shutil.rmtree(store.root / "images")
    (store.root / "images").mkdir()
    assert outcomes(grow_and_trace(plan, samples(3), make_runners(store, only=other))) == first
    plan = replace(PLAN, generations=10)
    grow_and_trace(plan, samples(3), make_runners(store, every={"batch_size": 2}))
    shutil.rmtree(store.root / "images")
    (store.root / "images").mkdir()
    assert remake(store, plan, 3, batch_size=2) == [0, 15]
