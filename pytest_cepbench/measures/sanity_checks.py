"""Checks that a case can see: its chance floor, encoders with one vector for all, constant answers.

All are of digests and vectors made for the scores: no model is called, nothing is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pytest_cepbench.chains import Chain, ChainPlan, Trace
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.metrics.constancy import SAME_VECTORS, most_common, spread_of_directions
from pytest_cepbench.metrics.gc import chance_similarities, mean_of_categories
from pytest_cepbench.store import Vector

FloatArray = npt.NDArray[np.float64]

_LONGEST = 60  # characters of an answer that is quoted

NO_FLOOR = "no floor by chance: no two samples start differently, so none can stand for another"
"""The note on a case without one."""


def floor_of(
    case: Case,
    parts: Mapping[str, Sequence[Sample]],
    traces: Mapping[str, Trace],
    score: Callable[[FloatArray], FloatArray],
) -> float | None:
    """The value of a case if every sample's outputs were those of another sample of its category.

    parts: the samples as the case's scores are pooled, as from `by_category`. traces: of samples by
    id; others have no part in it. score: (n, T) -> (n,), linear in the similarities. A sample is
    exchanged within its category: the part's, or, where a case pools the samples of several, its
    first one among them; where it has no other sample, within the whole case.
    None where all starts are equal, and where no artifact has a vector.
    """
    rows = [(name, s) for name, part in parts.items() for s in part if s.id in traces]
    own = [traces[sample.id] for _, sample in rows]
    width = next((len(v) for trace in own for v in trace.vectors if v is not None), None)
    if width is None:
        return None
    steps = len(own[0].similarities)
    compared = np.zeros((len(rows), steps + 1, width), dtype=np.float32)
    for row, trace in zip(compared, own, strict=True):
        for place, vector in enumerate(trace.vectors):
            if vector is not None:
                row[place] = vector
    pooled = len(parts) < len(case.categories)
    homes = [_home(sample, case) if pooled else name for name, sample in rows]
    starts = [trace.chain.links[0].digest for trace in own]
    chance = chance_similarities(compared[:, 0], compared[:, 1:], starts, homes)
    if chance is None:
        return None
    values = score(chance)
    names = np.array([name for name, _ in rows])
    return mean_of_categories({name: values[names == name] for name in dict.fromkeys(names)})


def _home(sample: Sample, case: Case) -> str:
    return next(name for name in sample.categories if name in case.categories)


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
