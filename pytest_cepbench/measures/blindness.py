"""What shows that a case can see: its floor by chance, encoders with one vector for all, constant
answers. They are of digests and vectors made for the scores: nothing is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pytest_cepbench.chains import Chain, ChainPlan, Trace
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.metrics.diversity import SAME_VECTORS, most_common, spread_of_directions
from pytest_cepbench.metrics.gc import mean_of_categories
from pytest_cepbench.store import Vector

FloatArray = npt.NDArray[np.float64]

_LONGEST = 60  # characters of an answer that is quoted

NO_FLOOR = "no floor by chance: no two samples start differently, so none can stand for another"
"""The note on a case without one."""


def floor_by_exchange(
    case: Case,
    parts: Mapping[str, Sequence[Sample]],
    known: Collection[str],
    chance: Callable[[list[str], list[str]], FloatArray | None],
) -> float | None:
    """The value of a case if every sample's outputs were those of another sample of its category.

    parts: the samples as the case's scores are pooled, as from `parts_of`.
    known: ids of the samples that have a part in it.
    chance: of ids and the category within which each is exchanged, what others' outputs score on
    average; None where all start alike. The category is the part's, or, where a case pools the
    samples of several, a sample's first one among them.
    """
    rows = [(name, s) for name, part in parts.items() for s in part if s.id in known]
    pooled = len(parts) < len(case.categories)
    homes = [
        next(own for own in sample.categories if own in case.categories) if pooled else name
        for name, sample in rows
    ]
    values = chance([sample.id for _, sample in rows], homes)
    if values is None:
        return None
    names = np.array([name for name, _ in rows])
    return mean_of_categories({name: values[names == name] for name in dict.fromkeys(names)})


def refuse_one_vector(traces: Sequence[Trace], generations: Sequence[int], encoder: str) -> None:
    """Raise MeasurementError where an encoder gives one vector for artifacts that differ.

    generations: those compared with the starts. encoder: names it in the message. Texts and images
    are looked at apart: an encoder of both can be blind to one. Artifacts of equal digests count
    once. Where all samples start alike nothing is said: what they become may be all but the same.
    """
    if len({trace.chain.links[0].digest for trace in traces}) < 2:
        return
    seen: dict[str, dict[str, Vector]] = {}
    for trace in traces:
        for generation, vector in zip((0, *generations), trace.vectors, strict=True):
            if vector is not None:
                link = trace.chain.links[generation]
                seen.setdefault(link.kind, {})[link.digest] = vector
    for kind, vectors in seen.items():
        refuse_same(encoder, kind, vectors)


def refuse_same(encoder: str, kind: str, vectors: Mapping[str, Vector], fewest: int = 2) -> None:
    """Raise MeasurementError where all vectors of artifacts that differ are one.

    encoder, kind: for the message. vectors: by what tells the artifacts apart.
    fewest: of which one vector is too much.
    """
    if len(vectors) < fewest:
        return
    if spread_of_directions(np.stack(list(vectors.values()))) <= SAME_VECTORS:
        raise MeasurementError(one_vector(encoder, len(vectors), kind))


def one_vector(encoder: str, count: int, kind: str) -> str:
    """Says that an encoder cannot see. count: of artifacts of the kind, which all differ."""
    return (
        f"{encoder} gives one vector for {count} {kind}s that differ (none is farther from the "
        f"first than {SAME_VECTORS:g} of its length): it cannot see what this case measures. Check "
        f"its weights and preprocessing, and whether the {kind}s are all but the same to the eye"
    )


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
