"""Blocks of a drift rate: the rate of the mean curve without each tenth of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.metrics.semantic_drift import fit_drift_rate
from pytest_cepbench.metrics.uncertainty import blocks_of, pseudo_values
from pytest_cepbench.store import Store
from tests.suites.world import Staged, stage

HERE = "python:tests.measures.test_mapping_blocks"

SUITE = f"""\
name = "paced"
version = 1
[data]
loader = "{HERE}:LOADER"
[chain]
start = "text"
generations = 14
[prompts]
describe = "describe"
[roles]
describer = "{HERE}:paced"
generator = "{HERE}:paced"
encoder = "{HERE}:paced"
[metrics.sdr.mappings]
text-to-text = "encoder"
[metrics.mcd.mappings]
text-to-text = "encoder"
"""

GENERATIONS = (2, 4, 6, 8, 10, 12, 14)


class Paced:
    """All roles: a chain that starts as "pace 3 ..." fades three times as fast as "pace 1 ...".

    Its picture has the pace as its red and the number of drawings as its green.
    """

    fingerprint = "paced/1"
    seeded = False

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """The pace, and how often the picture was drawn."""
        colors = [np.asarray(image)[0, 0] for image in images]
        return [f"pace {red} drawn {green} times" for red, green, _ in colors]

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """A picture that was drawn once more than the text says."""
        return [Image.new("RGB", (4, 4), (*_read(text), 99)) for text in texts]

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """(n, 2) unit vectors at an angle to the start that grows by the pace."""
        return np.array([_direction(*_read(text)) for text in texts])

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, 2) unit vectors; no mapping here compares images."""
        return np.array([_direction(1, 1) for _ in images])


def _read(text: str) -> tuple[int, int]:
    """Pace, and the number of the drawing that comes next."""
    words = text.split()
    return int(words[1]), int(words[3]) + 1


def _direction(pace: int, drawing: int) -> tuple[float, float]:
    similarity = 0.6 * exp(-0.2 * pace * (drawing - 1)) + 0.4
    return similarity, (1 - similarity**2) ** 0.5


def paced() -> Paced:
    """The model of all roles."""
    return Paced()


def _dataset(paces: Sequence[int], clusters: Sequence[str | None]) -> Dataset:
    pairs = enumerate(zip(paces, clusters, strict=True))
    samples = [
        Sample(f"s{n:02}", ("all",), text=f"pace {pace} drawn 0 times, {n}", cluster=cluster)
        for n, (pace, cluster) in pairs
    ]
    return Dataset("paced", {}, tuple(samples))


def unlike() -> Dataset:
    """Twenty-three chains of three paces."""
    return _dataset([1 + n % 3 for n in range(23)], [None] * 23)


def clustered() -> Dataset:
    """Twenty chains, seeds of five prompts."""
    return _dataset([1 + n % 3 for n in range(20)], [f"c{n % 5}" for n in range(20)])


def few() -> Dataset:
    """Three chains."""
    return _dataset([1, 2, 3], [None] * 3)


def one_block_fades() -> Dataset:
    """Four chains, of which only those of block 0 fade at all."""
    names = [f"s{n:02}" for n in range(4)]
    blocks = blocks_of(names)
    return _dataset([2 if blocks[name] == 0 else 0 for name in names], [None] * 4)


def _staged(folder: Path, store: Store, loader: str) -> Staged:
    return stage(folder, SUITE.replace("LOADER", loader), store)


@pytest.mark.parametrize(("loader", "count"), [("unlike", 10), ("clustered", 2)])
def test_blocks_are_the_rate_without_them(
    tmp_path: Path, store: Store, loader: str, count: int
) -> None:
    """The curve of the other samples is fitted anew; samples of a cluster leave together."""
    staged = _staged(tmp_path, store, loader)
    samples = staged.run.dataset.samples
    block = blocks_of([sample.unit for sample in samples])

    def rate(kept: Sequence[Sample]) -> float:
        paces = [int(str(sample.text).split()[1]) for sample in kept]
        curve = [
            float(np.mean([0.6 * exp(-0.2 * pace * g / 2) + 0.4 for pace in paces]))
            for g in GENERATIONS
        ]
        rate = fit_drift_rate(GENERATIONS, curve).b
        assert rate is not None
        return rate

    rests = [rate([s for s in samples if block[s.unit] != sample]) for sample in range(count)]
    values = pseudo_values(rate(samples), rests)
    measured = staged.measure("text-to-text-sdr")
    expected = {str(block): pytest.approx(value, abs=2e-4) for block, value in enumerate(values)}
    assert measured.blocks == {"text-to-text": expected}
    assert np.ptp(values) > 0.005


def test_too_few_chains_make_no_blocks(tmp_path: Path, store: Store) -> None:
    """The rate is there without bounds, and the note says why."""
    measured = _staged(tmp_path, store, "few").measure("text-to-text-sdr")
    assert (measured.value > 0, measured.blocks) == (True, {})
    assert measured.notes[-1] == (
        "no bounds for text-to-text: 3 independent samples make no blocks, at least 4 would"
    )


def test_a_rest_that_tells_no_rate_leaves_no_blocks(tmp_path: Path, store: Store) -> None:
    """Without the only chains that fade the curve is flat: no number is made up for it."""
    measured = _staged(tmp_path, store, "one_block_fades").measure("text-to-text-sdr")
    assert (measured.value > 0, measured.blocks) == (True, {})
    assert measured.notes[-1] == (
        "no bounds for text-to-text: without block 0 the curve does not tell a drift rate: "
        "the curve is flat"
    )


def test_only_a_rate_needs_blocks(tmp_path: Path, store: Store) -> None:
    """MCD has a score for every sample, and an identity without a jackknife."""
    staged = _staged(tmp_path, store, "unlike")
    assert staged.measure("text-to-text-mcd").blocks == {}
    rate, mean = staged.run.measures["sdr"].identity, staged.run.measures["mcd"].identity
    assert rate == "sdr/2 text-to-text by encoder, jackknife/1 of 10 blocks"
    assert mean == "mcd/1 text-to-text by encoder"
