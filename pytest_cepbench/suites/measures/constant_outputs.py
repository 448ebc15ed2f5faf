"""Models whose answers are the same whatever they are given, said in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pytest_cepbench.chains import Chain, ChainPlan
from pytest_cepbench.metrics.constancy import most_common

_LONGEST = 60


def same_answers(plan: ChainPlan, chains: Collection[Chain]) -> Iterator[str]:
    """A sentence for each role of which nearly all answers are one, to inputs that differ.

    Of the first description and the first drawing of every chain: later ones may agree because the
    chains have come to agree. Known from digests, so nothing is read.
    """
    for generation in range(1, min(2, plan.generations) + 1):
        links = [c.links[generation - 1 : generation + 1] for c in chains if c.has(generation)]
        pairs = [(before.digest, after.digest) for before, after in links if before.recorded]
        common = most_common(pairs)
        if common is None or not common.constant:
            continue
        if plan.describes(generation):
            texts = (after.text for _, after in links if after.digest == common.answer)
            text = " ".join((next(texts) or "").split())
            shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
            yield f"{common} descriptions are the same, of images that differ: {shown!r}"
        else:
            yield f"{common} drawings are the same, of descriptions that differ"
