"""The floor by chance of similarity cases, and encoders that give one vector for everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.chains import Chain, load_link
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.models.rule_based.scene_models import ShapesEncoder
from pytest_cepbench.store import Store
from tests.suites.world import SUITE, Staged, stage, vector

METRICS = """\
[metrics.gc]
[metrics.s]
[metrics.sim]
[groups]
all = ["b", "a"]
"""

DRIFT = """\
[metrics.mcd]
"""


def _vectors(staged: Staged) -> dict[str, list[npt.NDArray[np.float64]]]:
    """The unit vectors of every sample's start and generations 2 and 4."""
    chain_data = staged.run.chain_data
    similarities = {}
    for name, chain in chain_data.chains("image", chain_data.dataset.samples).items():
        rows = [vector(load_link(chain, g, chain_data.store)) for g in (0, 2, 4)]
        similarities[name] = [row / np.linalg.norm(row) for row in rows]
    return similarities


def _members(staged: Staged, category: str) -> list[str]:
    return [sample.id for sample in staged.run.dataset.in_category(category)]


def _by_hand(
    vectors: dict[str, list[npt.NDArray[np.float64]]],
    members: Sequence[str],
    weights: Sequence[float],
) -> float:
    """The mean over all ordered pairs of different samples, none of which start alike here."""
    scores = [
        float(sum(w * (vectors[i][0] @ vectors[j][t + 1]) for t, w in enumerate(weights)))
        for i in members
        for j in members
        if i != j
    ]
    return float(np.mean(scores))


@pytest.mark.parametrize(
    ("metric", "weights"), [("gc", (1 / 3, 2 / 3)), ("s", (0, 1)), ("sim", (1, 0))]
)
def test_the_floor_is_the_score_of_others(
    tmp_path: Path, store: Store, metric: str, weights: tuple[float, ...]
) -> None:
    """Of a category: all pairs of its samples; of a group and all of GC: the categories' mean."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    vectors = _vectors(staged)
    floors = {c: _by_hand(vectors, _members(staged, c), weights) for c in ("a", "b")}
    for category, floor in floors.items():
        measured = staged.measure(f"{category}-{metric}")
        assert measured.floor == pytest.approx(floor, abs=1e-6)
        assert measured.floor is not None
        assert measured.floor < measured.value
    if metric != "sim":
        for part in ("all", "overall"):
            mean = np.mean(list(floors.values()))
            assert staged.measure(f"{part}-{metric}").floor == pytest.approx(mean, abs=1e-6)


def test_a_whole_of_samples_is_exchanged_within_first_categories(
    tmp_path: Path, store: Store
) -> None:
    """SIM counts every sample once: against those that share its first category."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    vectors = _vectors(staged)
    homes: dict[str, list[str]] = {}
    for sample in staged.run.dataset.samples:
        homes.setdefault(sample.categories[0], []).append(sample.id)
    total = sum(_by_hand(vectors, own, (1, 0)) * len(own) for own in homes.values())
    measured = staged.measure("overall-sim")
    assert measured.floor == pytest.approx(total / 12, abs=1e-6)


def test_mappings_have_floors_and_their_mean(tmp_path: Path, store: Store) -> None:
    """Each mapping by its own encoder and chains; the whole is the mean, as its value is."""
    text = SUITE.replace('start = "image"', 'start = "both"') + DRIFT
    text = text.replace('encoder = "shapes:"', 'encoder = "python:tests.suites.world:namer"')
    text = text.replace("python:tests.suites.world:overlapping", "shapes") + (
        "[data.options]\nsamples_per_category = 2\n"
    )
    staged = stage(tmp_path / "suite", text, store)
    parts = ("text-to-text", "text-to-image", "image-to-image", "image-to-text")
    floors = []
    for part in parts:
        measured = staged.measure(f"{part}-mcd")
        assert measured.floor is not None
        floors.append(measured.floor)
    assert staged.measure("overall-mcd").floor == pytest.approx(np.mean(floors), abs=1e-6)


def test_one_sample_has_no_floor(tmp_path: Path, store: Store) -> None:
    """Which is said; it has its score all the same."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    measured = staged.run.measure(staged.cases["a-gc"], 1)
    assert measured.floor is None
    assert measured.n == 1
    assert any("no two samples start differently" in note for note in measured.notes)


class Blind(ShapesEncoder):
    """One direction for all images, of a length that depends on the image."""

    fingerprint = "blind/1"
    noise = 0.0

    def encode_images(self, images: Sequence[Any]) -> npt.NDArray[np.float64]:
        """(n, 8)."""
        rng = np.random.default_rng(0)
        rows = np.ones((len(images), 8)) + self.noise * rng.normal(size=(len(images), 8))
        return rows * np.arange(1, len(images) + 1)[:, None]


class NearlyBlind(Blind):
    """The same, up to the rounding of its numbers."""

    fingerprint = "nearly blind/1"
    noise = 1e-6


def blind() -> Blind:
    """An encoder that sees nothing."""
    return Blind()


def nearly_blind() -> Blind:
    """An encoder that sees rounding."""
    return NearlyBlind()


def _with_encoder(name: str) -> str:
    return SUITE.replace('encoder = "shapes:"', f'encoder = "python:{__name__}:{name}"')


@pytest.mark.parametrize("name", ["blind", "nearly_blind"])
@pytest.mark.parametrize("case", ["a-gc", "overall-sim", "overall-s"])
def test_an_encoder_of_one_vector_measures_nothing(
    tmp_path: Path, store: Store, name: str, case: str
) -> None:
    """It would give every checkpoint a perfect score: an error that says who sees nothing."""
    staged = stage(tmp_path / "suite", _with_encoder(name) + METRICS, store)
    with pytest.raises(
        MeasurementError, match=rf"{name} gives one vector for \d+ images that differ"
    ):
        staged.measure(case)


def test_equal_pictures_may_have_equal_vectors(tmp_path: Path, store: Store) -> None:
    """Samples of one picture are one picture: an encoder that tells it so is right."""
    staged = stage(tmp_path / "suite", _with_encoder("blind") + METRICS, store)
    measured = staged.run.measure(staged.cases["a-gc"], 1)
    assert measured.value == pytest.approx(1.0)
    chains: dict[str, Chain] = staged.run.chain_data.chains("image", measured_samples(staged))
    assert len({chain.links[0].digest for chain in chains.values()}) == 1


def measured_samples(staged: Staged) -> tuple[Any, ...]:
    """The one sample of the look."""
    return staged.run.looked_at(staged.cases["a-gc"], 1)


@pytest.mark.parametrize("part", ["text-to-image", "image-to-text", "overall"])
def test_each_modality_is_looked_at_apart(tmp_path: Path, store: Store, part: str) -> None:
    """Texts that are told apart do not hide that images are not."""
    text = _with_encoder("half_blind").replace('start = "image"', 'start = "both"') + DRIFT
    text = text.replace("python:tests.suites.world:overlapping", "shapes") + (
        "[data.options]\nsamples_per_category = 2\n"
    )
    staged = stage(tmp_path / "suite", text, store)
    with pytest.raises(MeasurementError, match=r"half_blind gives one vector for \d+ images"):
        staged.measure(f"{part}-mcd")
    assert staged.measure("text-to-text-mcd").floor is not None


class HalfBlind(ShapesEncoder):
    """Texts are told apart, images are not."""

    fingerprint = "half blind/1"

    def encode_images(self, images: Sequence[Any]) -> npt.NDArray[np.float64]:
        """(n, D)."""
        return np.ones((len(images), super().encode_texts(["nothing"]).shape[1]))


def half_blind() -> HalfBlind:
    """An encoder of which one half sees."""
    return HalfBlind()
