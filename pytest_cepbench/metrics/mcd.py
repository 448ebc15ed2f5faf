"""MCD, mean cumulative drift: how much of a chain's start is kept over all of its generations.

The curve S_delta(g) that it sums up is `mean_similarity` of a mapping's similarities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]

Modality = Literal["image", "text"]


def mapping_generations(start: Modality, compares: Modality, generations: int) -> tuple[int, ...]:
    """The generations that a mapping scores: those whose artifacts have the modality it compares.

    start: what the chain starts from.
    compares: what is compared with that start.
    generations: G, the length of the chain, at least 0; generation 0 is the start itself and is
    never scored.
    Returns them in ascending order, G included where it fits: the even ones up to G where both
    modalities are the same, the odd ones where they differ.
    Source: the Telephone Game, section 3.1 and Figure 6; its released code fixes G at 20.
    Raises ValueError for another modality or a negative length.
    """
    for modality in (start, compares):
        if modality not in get_args(Modality):
            msg = f"expected a modality of {get_args(Modality)}, got {modality!r}"
            raise ValueError(msg)
    if generations < 0:
        msg = f"expected a chain of at least 0 generations, got {generations}"
        raise ValueError(msg)
    return tuple(range(2 if start == compares else 1, generations + 1, 2))


def mcd_of_mapping(similarities: FloatArray) -> npt.NDArray[np.float64]:
    """MCD_delta of each sample: the mean similarity over the generations that the mapping scores.

    similarities: (n, k) cosine similarities to the start, in [-1, 1], one column for each of the
    mapping's k generations.
    Returns (n,), in [-1, 1]; higher is less drift, despite the name. The paper's MCD_delta is the
    mean over samples.
    Source: the Telephone Game, Eq. 1 and 2. Eq. 2 divides a sum over g = 1..G by G, but every
    other generation has the other modality and no similarity in this mapping: divided by G the
    result would be half of what it is meant to be. Here, as in the released code, the mean is over
    the mapping's own k generations.
    Raises ValueError when k is 0 or the array is not two-dimensional.
    """
    values = np.asarray(similarities, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] == 0:
        msg = f"expected (n, k) with a column for each of k >= 1 generations, got {values.shape}"
        raise ValueError(msg)
    means: npt.NDArray[np.float64] = values.mean(axis=1)
    return means


def mcd_average(mappings: Mapping[str, FloatArray]) -> npt.NDArray[np.float64]:
    """MCD_avg of each sample: the unweighted mean of its mappings.

    mappings: name -> (n,) `mcd_of_mapping`, the same samples in the same order in each.
    Returns (n,), in [-1, 1]. Its mean over samples is the paper's mean of the mappings' MCD_delta,
    as every sample is in every mapping.
    The average is one number over encoders whose cosines have different ranges (CLIP across
    modalities rarely passes 0.4, MPNet and DINO reach 1): it compares models, not mappings.
    Source: the Telephone Game, section 3.1.
    Raises ValueError when there is no mapping or the mappings have different samples.
    """
    shapes = {name: np.shape(scores) for name, scores in mappings.items()}
    if len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 1:
        msg = f"expected scores of the same samples, (n,), for at least one mapping, got {shapes}"
        raise ValueError(msg)
    average: npt.NDArray[np.float64] = np.mean(
        [np.asarray(scores, dtype=np.float64) for scores in mappings.values()], axis=0
    )
    return average
