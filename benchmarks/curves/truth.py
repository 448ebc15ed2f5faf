"""How much of a start's scene its chain still tells or shows, which only such a world knows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains import Chain
from pytest_cepbench.chains.chain import load_link
from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    parse_caption,
    parse_image,
    sample_scene,
)
from pytest_cepbench.store import Store

Array = npt.NDArray[np.float64]

_SEEN: dict[str, Callable[[SceneObject], Hashable]] = {
    "objects": lambda thing: thing,
    "cell": lambda thing: thing.cell,
    "shape": lambda thing: (thing.cell, thing.shape),
    "color": lambda thing: (thing.cell, thing.color),
    "size": lambda thing: (thing.cell, thing.size),
}

ASPECTS = ("exact", *_SEEN)
"""What is compared: the whole scene, its objects, their cells, and one attribute with its cell."""


def kept(start: Scene, now: Scene) -> tuple[float, ...]:
    """How much of a scene is kept in another, in [0, 1], in the order of `ASPECTS`.

    exact: 1 where the scenes are equal, else 0. The others are F1, so that what is missing and what
    is made up count alike: over whole objects, over the cells that hold one, over cells with the
    shape, the color or the size in them. An attribute's is at most its cells' and at least its
    objects'.
    """
    shares = (
        _f1({seen(thing) for thing in start.objects}, {seen(thing) for thing in now.objects})
        for seen in _SEEN.values()
    )
    return (float(start == now), *shares)


def kept_by_chains(chains: Sequence[Chain], generations: int, store: Store) -> Array:
    """(n, generations + 1, aspects): what each chain keeps of its start, generation 0 first.

    Generation 0 is the start itself, read back. What a chain that stopped does not have is lost: 0.
    """
    shares = np.zeros((len(chains), generations + 1, len(ASPECTS)))
    for row, chain in zip(shares, chains, strict=True):
        start = sample_scene(chain.sample)
        for generation in range(generations + 1):
            now = _scene_at(chain, generation, store)
            if now is not None:
                row[generation] = kept(start, now)
    return shares


def _scene_at(chain: Chain, generation: int, store: Store) -> Scene | None:
    """The scene that an artifact tells or shows; None where the chain has none."""
    if not chain.has(generation):
        return None
    artifact = load_link(chain, generation, store)
    if artifact is None:
        raise ValueError(
            f"{chain.sample.id}, generation {generation}: its image is damaged; run it again"
        )
    if isinstance(artifact, str):
        return parse_caption(artifact)
    return parse_image(ImageArtifact.from_pil(artifact))


def _f1(first: set[Hashable], second: set[Hashable]) -> float:
    if not first and not second:
        return 1.0
    return 2 * len(first & second) / (len(first) + len(second))
