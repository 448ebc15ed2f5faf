"""What a chain keeps of its scene: known answers, bounds between aspects, and lost chains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.curves.truth import ASPECTS, kept, kept_by_chains
from pytest_cepbench.chains import Chain
from pytest_cepbench.chains.chain import Link
from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption, load_shapes
from pytest_cepbench.datasets.shapes.scene import COLORS, SHAPES, SIZES
from pytest_cepbench.store import Store

objects = st.builds(
    SceneObject,
    cell=st.integers(0, 8),
    size=st.sampled_from(SIZES),
    color=st.sampled_from(COLORS),
    shape=st.sampled_from(SHAPES),
)

scenes = st.lists(objects, max_size=5, unique_by=lambda placed: placed.cell).map(
    lambda some: Scene(tuple(some))
)

CIRCLE = SceneObject(0, "small", "red", "circle")
CROSS = SceneObject(4, "large", "blue", "cross")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ([CIRCLE, CROSS], (1, 1, 1, 1, 1, 1)),
        ([], (0, 0, 0, 0, 0, 0)),
        ([CIRCLE], (0, 2 / 3, 2 / 3, 2 / 3, 2 / 3, 2 / 3)),
        ([CIRCLE, replace(CROSS, color="green")], (0, 0.5, 1, 1, 0.5, 1)),
        ([CIRCLE, replace(CROSS, cell=5)], (0, 0.5, 0.5, 0.5, 0.5, 0.5)),
        ([CIRCLE, CROSS, replace(CROSS, cell=8)], (0, 0.8, 0.8, 0.8, 0.8, 0.8)),
    ],
)
def test_what_is_kept(now: list[SceneObject], expected: tuple[float, ...]) -> None:
    """A lost, a moved, a recolored and an added object, each in the aspects that it touches."""
    assert kept(Scene((CIRCLE, CROSS)), Scene(tuple(now))) == pytest.approx(expected)


@given(scenes, scenes)
def test_aspects_bound_each_other(start: Scene, now: Scene) -> None:
    """Objects are never kept better than an attribute, nor an attribute better than its cells."""
    shares = dict(zip(ASPECTS, kept(start, now), strict=True))

    assert shares == dict(zip(ASPECTS, kept(now, start), strict=True))
    assert (shares["exact"] == 1) == (shares["objects"] == 1)
    for attribute in ("shape", "color", "size"):
        assert shares["objects"] <= shares[attribute] <= shares["cell"]


def test_artifacts_are_read_back_and_what_is_missing_is_lost(tmp_path: Path) -> None:
    """Starts of both modalities are read exactly; a told scene counts; a stopped chain has 0."""
    dataset = load_shapes(2)
    first, second, *_ = dataset.samples
    assert first.image is not None
    assert first.text is not None
    drawn = Link("image", first.image.load().digest, source=first.image)
    wrong = caption(Scene((CIRCLE, CROSS)))
    chains = [
        Chain(first, [drawn, Link("text", "a", text=first.text), Link("text", "b", text=wrong)]),
        Chain(second, [Link("text", "c", text=second.text)]),
    ]

    with Store(tmp_path / "store") as store:
        shares = kept_by_chains(chains, 2, store)

    exact = shares[:, :, ASPECTS.index("exact")].tolist()
    assert exact == [[1, 1, 0], [1, 0, 0]]
