"""How far a model differs from itself: the noise of a case, from the same case under several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import fsum, sqrt
from statistics import stdev

from pytest_cepbench.gate import Measurement, Noise
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.pairing import blocks_apart
from pytest_cepbench.gate.statistics import Differences

Scores = Mapping[str, Mapping[str, float]]


def noise_of(measurements: Sequence[Measurement]) -> Noise | str:
    """The noise of a case, or a sentence why it cannot be told.

    measurements: of one case, one for each seed, at least 2. sd^2 is the mean over all pairs of
    seeds of the variance of a unit's difference, as the gate has it (`Differences.sd`); of a score
    of a whole set the units are its jackknife blocks. value_sd is the sample standard deviation of
    the values. Both in the metric's unit.
    Raises ValueError for fewer than 2 measurements.
    """
    if len(measurements) < 2:
        msg = f"noise shows between at least 2 seeds, got {len(measurements)}"
        raise ValueError(msg)
    found = []
    for first, second in combinations(measurements, 2):
        difference = _difference(first, second)
        if isinstance(difference, str):
            return difference
        found.append(difference)
    units = found[0].units
    if units < 2:
        return "one independent sample shows no spread: at least 2 are needed"
    return Noise(
        seeds=len(measurements),
        units=units,
        sd=round(sqrt(fsum(one.sd**2 for one in found) / len(found)), DECIMALS),
        value_sd=round(stdev(one.value for one in measurements), DECIMALS),
    )


def _difference(first: Measurement, second: Measurement) -> Differences | str:
    whole_sets = bool(first.sizes)
    before, after = (first.blocks, second.blocks) if whole_sets else (first.scores, second.scores)
    if whole_sets and not before.keys() == after.keys() == first.scores.keys():
        return "its sets are too small to leave a block of samples out"
    if _names(before) != _names(after):
        what = "blocks of samples" if whole_sets else "samples"
        return f"not the same {what} were scored under every seed"
    differences = {
        category: {name: after[category][name] - score for name, score in part.items()}
        for category, part in before.items()
    }
    if not whole_sets:
        return Differences.of(differences, first.clusters)
    return Differences.of(blocks_apart(differences))


def _names(scores: Scores) -> dict[str, set[str]]:
    return {category: set(part) for category, part in scores.items()}
