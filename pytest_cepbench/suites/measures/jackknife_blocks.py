"""Blocks of samples that are left out one at a time, where one score stands for all samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.metrics.jackknife import BLOCKS, FEWEST_UNITS, blocks_of, pseudo_values

JACKKNIFE = f"jackknife/1 of {BLOCKS} blocks"
"""Part of the identity of what is scored so: other blocks have other pseudo-values."""


def block_of_each(samples: Sequence[Sample]) -> dict[str, int]:
    """Sample id -> its block, 0 to blocks - 1; all samples of a unit in one.

    It depends on ids and units alone, not on what became of their chains. Empty where there are too
    few units.
    """
    blocks = blocks_of([sample.unit for sample in samples])
    return {sample.id: blocks[sample.unit] for sample in samples} if blocks else {}


def too_few_units(samples: Sequence[Sample]) -> str:
    """Why `block_of_each` gives no blocks."""
    units = len({sample.unit for sample in samples})
    return f"{units} independent samples make no blocks, at least {FEWEST_UNITS} would"


def scored_blocks(whole: float, without: Sequence[float]) -> Mapping[str, float]:
    """Block -> pseudo-value; nothing where no block was left out.

    whole: the score of all samples. without: the score without each block, block 0 first, or none.
    """
    if not without:
        return {}
    values = pseudo_values(whole, without).tolist()
    return {str(block): value for block, value in enumerate(values)}


def unbounded(name: str, why: str) -> str:
    """The note on a category without blocks."""
    return f"no bounds for {name}: {why}"


def part_key(samples: Sequence[Sample]) -> str:
    """Names a part of a data set by its samples and their units, for what is made of all of them."""
    return digest_json([[sample.id, sample.unit] for sample in samples])
