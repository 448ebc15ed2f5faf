"""From chains to traces: how similar each iteration's artifact still is to the chain's start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains.engine import (
    Chain,
    Crew,
    DamagedChainsError,
    damaged_keys,
    grow,
    load_link,
)
from pytest_cepbench.chains.plan import ChainPlan
from pytest_cepbench.chains.runner import DamagedInputsError, Step
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import StoreError
from pytest_cepbench.metrics import cosine_to_start
from pytest_cepbench.store import Result

_SPARE_REPAIRS = 4  # each repair makes a generation's images whole; more means a dying disk

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Trace:
    """The similarities of one chain to its own start.

    similarities: one per iteration, in [-1, 1]; 0 from the failed step on (design 4).
    failure, failed_at: what stopped it (growing or encoding) and at which generation.
    """

    chain: Chain
    similarities: tuple[float, ...]
    failure: Failure | None
    failed_at: int | None


def play(plan: ChainPlan, samples: Sequence[Sample], crew: Crew) -> list[Trace]:
    """Play the telephone game with every sample: grow its chain and trace it.

    Stored images that turn out to be damaged are made again. Raises DatasetError, ModelError,
    CheckpointError, and StoreError when images keep getting lost.
    """
    for _ in range(plan.generations + _SPARE_REPAIRS):
        try:
            return trace(plan, grow(plan, samples, crew), crew)
        except DamagedChainsError as damage:
            crew.store.forget(damage.keys, why="the image it made is damaged or gone")
    msg = f"images in the store {crew.store.root} keep getting lost: is the disk failing?"
    raise StoreError(msg)


def trace(plan: ChainPlan, chains: Sequence[Chain], crew: Crew) -> list[Trace]:
    """Encode the start and every iteration's artifact of the chains, and compare.

    The artifacts compared are of the start's modality: generations 0, 2, ..., 2T.
    Raises ModelError and the others of the encoder; DamagedChainsError when a stored image that
    has to be encoded is damaged: the chains have to be grown again then.
    """
    vectors: list[list[Vector]] = [[] for _ in chains]
    failures: dict[int, tuple[Failure, int]] = {}
    for generation in range(0, plan.generations + 1, 2):
        able = [i for i, c in enumerate(chains) if len(c.links) > generation and i not in failures]
        results = _encode([chains[i] for i in able], generation, crew)
        for i, result in zip(able, results, strict=True):
            if isinstance(result, Failure):
                failures[i] = (result, generation)
            else:
                assert isinstance(result, np.ndarray)
                vectors[i].append(result)
    traces = []
    for i, chain in enumerate(chains):
        failure, failed_at = failures.get(i, (chain.failure, chain.failed_at))
        similarities = _similarities(vectors[i], plan.iterations)
        traces.append(Trace(chain, similarities, failure, failed_at))
    return traces


def _encode(chains: Sequence[Chain], generation: int, crew: Crew) -> list[Result]:
    if not chains:
        return []
    runner = crew.encoder
    steps = []
    for chain in chains:
        link = chain.links[generation]
        key = runner.key("", 0, link.kind, link.digest)

        def load(chain: Chain = chain) -> object:
            return load_link(chain, generation, crew.store)

        steps.append(Step(key, 0, load))
    try:
        return runner.encode(chains[0].links[generation].kind, steps)
    except DamagedInputsError as damage:
        raise DamagedChainsError(damaged_keys(chains, generation, damage)) from damage


def _similarities(vectors: Sequence[Vector], iterations: int) -> tuple[float, ...]:
    """Cosines to the first vector, with 0 for every iteration that has none."""
    values = np.zeros(iterations)
    if len(vectors) > 1:
        start, later = np.stack(vectors[:1]), np.stack(vectors[1:])[None]
        values[: len(vectors) - 1] = cosine_to_start(start, later)[0]
    return tuple(values.tolist())
