"""How far the images of a generation are from their starts, also without each block of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, TooFewError
from pytest_cepbench.metrics.constancy import SAME_VECTORS, spread_of_vectors
from pytest_cepbench.metrics.frechet import frechet_distance, frechet_distances_without
from pytest_cepbench.metrics.kernel_distance import KernelBlocks
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.chance_floors import one_vector
from pytest_cepbench.suites.measures.jackknife_blocks import block_of_each, part_key, too_few_units

FEWEST = 2
"""Images that a set must have; one alone has no spread."""

_FED = 1000  # rows widened to float64 at once, about a block of a kernel distance


@dataclass(frozen=True)
class FeatureRows:
    """Features of all images at a generation, in an order that depends on the samples alone.

    features: (n, D) float32. blocks: (n,) the block of each. failed: sample -> why it has none,
    where that was the encoder's failure. different: how many different images they are of.
    """

    features: npt.NDArray[np.float32]
    blocks: npt.NDArray[np.intp]
    failed: dict[str, Failure]
    different: int


@dataclass(frozen=True)
class SetStep:
    """The images of one generation against the starts.

    images: how many starts, how many images. width: D. whole: the distance, None where a set has
    too few images. without: the distance of the rest without each block, block 0 first; empty where
    `why` says what is in the way. failed: as in `Rows`, of both.
    """

    images: tuple[int, int]
    width: int
    whole: float | None
    without: tuple[float, ...]
    why: str
    failed: dict[str, Failure]


Distance = Callable[[FeatureRows, FeatureRows, int], tuple[float, tuple[float, ...], str]]
"""Starts, images, number of blocks -> the whole distance, those without a block, why there are none."""


@dataclass(frozen=True)
class ImageSets:
    """The sets of images that some samples' chains have at each generation, as an encoder sees them.

    encoder: its seat. Blocks leave out a sample's start and all of its images together. What is
    found of a generation is remembered in the evidence, for every metric that asks.
    """

    plan: ChainPlan
    encoder: str
    samples: Sequence[Sample]
    evidence: ChainData

    def frechet(self, generation: int) -> SetStep:
        """Step by the Frechet distance."""
        return self._step("frechet", generation, _frechet)

    def kernel(self, generation: int) -> SetStep:
        """Step by the kernel distance."""
        return self._step("kernel", generation, _kernel)

    def _step(self, kind: str, generation: int, distance: Distance) -> SetStep:
        key = (kind, self.plan.start, self.encoder, generation)
        return self.evidence.once(
            key, part_key(self.samples), lambda: self._measure(generation, distance)
        )

    def _measure(self, generation: int, distance: Distance) -> SetStep:
        starts, images = self._starts, self._gather(generation)
        sizes = (len(starts.features), len(images.features))
        failed = starts.failed | images.failed
        width = starts.features.shape[1]
        if min(sizes) < FEWEST:
            return SetStep(sizes, width, None, (), "", failed)
        self._refuse_one_vector(starts, images)
        count = max(self._block_of_each.values(), default=-1) + 1
        whole, without, why = distance(starts, images, count)
        return SetStep(
            sizes, width, whole, without, why if count else too_few_units(self.samples), failed
        )

    def _refuse_one_vector(self, starts: FeatureRows, images: FeatureRows) -> None:
        """Raise MeasurementError where images that differ have one vector: no distance sees them."""
        if starts.different < FEWEST or spread_of_vectors(starts.features) > SAME_VECTORS:
            return
        both = np.concatenate([starts.features[:1], images.features])
        if spread_of_vectors(both) <= SAME_VECTORS:
            count = max(starts.different, images.different)
            spec = self.evidence.runner(self.encoder).bound.spec
            raise MeasurementError(one_vector(spec, count, "image"))

    @cached_property
    def _block_of_each(self) -> dict[str, int]:
        return block_of_each(self.samples)

    @cached_property
    def _starts(self) -> FeatureRows:
        return self._gather(0)

    def _gather(self, generation: int) -> FeatureRows:
        features: list[npt.NDArray[np.float32]] = []
        blocks: list[int] = []
        failed: dict[str, Failure] = {}
        digests: set[str] = set()
        shards = self.evidence.features(self.plan.start, self.encoder, generation, self.samples)
        for shard in shards:
            able = []
            for chain, found in shard:
                if isinstance(found, Failure):
                    failed[chain.sample.id] = found
                else:
                    able.append(found)
                    digests.add(chain.links[generation].digest)
                    blocks.append(self._block_of_each.get(chain.sample.id, 0))
            if able:
                features.append(np.stack(able))
        rows = np.concatenate(features) if features else np.empty((0, 1), dtype=np.float32)
        return FeatureRows(rows, np.array(blocks, dtype=np.intp), failed, len(digests))


def _frechet(
    starts: FeatureRows, images: FeatureRows, count: int
) -> tuple[float, tuple[float, ...], str]:
    whole = frechet_distance(starts.features, images.features)
    if not count:
        return whole, (), ""
    try:
        without = frechet_distances_without(
            starts.features, images.features, starts.blocks, images.blocks, count
        )
    except TooFewError as error:
        return whole, (), str(error)
    return whole, tuple(without), ""


def _kernel(
    starts: FeatureRows, images: FeatureRows, count: int
) -> tuple[float, tuple[float, ...], str]:
    sizes = len(starts.features), len(images.features)
    sums = KernelBlocks(*sizes)
    # In step, so that no more than a block of each set is held as float64.
    for low in range(0, max(sizes), _FED):
        some = slice(low, low + _FED)
        sums.add(
            starts.features[some],
            images.features[some],
            (starts.blocks[some], images.blocks[some]),
        )
    try:
        return sums.distance(), tuple(sums.distance_without(one) for one in range(count)), ""
    except TooFewError as error:
        return sums.distance(), (), str(error)
