"""Checks of what goes in and comes out: samples that are there twice, answers that are all the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_cepbench.chains import Chain, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.metrics.constancy import COMMON_SHARE, FEWEST_ANSWERS, most_common
from pytest_cepbench.studies.doctor.diagnosis import Check, CheckTable, Status
from pytest_cepbench.studies.doctor.measured_suite import Comparison, MeasuredSuite
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.sanity_checks import same_answers

NEAR = 0.999
"""Cosine from which two different starts count as near-equal."""

MANY = 0.1
"""Share of samples that are there twice from which it is a problem: statistics count each."""

_NAMED = 5

_BLOCK = 512  # starts compared at once with all others


def duplicates(measured_suite: MeasuredSuite) -> Check:
    """Samples of different units that start from the same artifact, or from near-equal ones."""
    name = "duplicates among the samples"
    chain_data, samples = measured_suite.run.chain_data, measured_suite.dataset.samples
    said: list[str] = []
    advice: list[str] = []
    gravest: Status = "pass"
    for start in measured_suite.run.suite.plans:
        equal = _equal(chain_data, start, samples)
        if equal:
            twice = sum(len(group) - 1 for group in equal)
            gravest = "problem" if twice >= MANY * len(samples) else _at_least(gravest)
            said.append(
                f"{twice} of {len(samples)} samples have the {start} of another one: "
                f"{_listed(equal)}"
            )
            advice.append(
                f"drop the copies: each counts as evidence of its own, which {twice} of them are "
                "not"
            )
    comparisons = measured_suite.comparisons()
    for comparison in comparisons:
        near = _near(measured_suite, comparison)
        if near:
            gravest = _at_least(gravest)
            said.append(
                f"pairs of {comparison.kind}s that differ and are near-equal to the "
                f"{comparison.encoder} (cosine of {NEAR:g} or more): {len(near)}, {_listed(near)}"
            )
            advice.append(
                "look at the near-equal pairs: where they show the same, drop one; where they do "
                "not, use an encoder that tells them apart"
            )
    near_too = f", none with a cosine of {NEAR:g} or more" if comparisons else ""
    quiet = f"no two of {len(samples)} samples start from the same{near_too}"
    return Check(
        name,
        gravest,
        tuple(said) or (quiet,),
        tuple(dict.fromkeys(advice)),
    )


def _at_least(status: Status) -> Status:
    return "problem" if status == "problem" else "remark"


def _equal(chain_data: ChainData, start: Modality, samples: Sequence[Sample]) -> list[list[str]]:
    """Ids of samples of different units, by the digest that they share."""
    digests = chain_data.starts(start, samples)
    groups: dict[str, dict[str, str]] = {}
    for sample in samples:
        groups.setdefault(digests[sample.id], {}).setdefault(sample.unit, sample.id)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def _near(measured_suite: MeasuredSuite, comparison: Comparison) -> list[list[str]]:
    """Pairs of ids whose starts differ and have nearly the same direction."""
    chain_data = measured_suite.run.chain_data
    names: list[str] = []
    rows: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    known: set[str] = set()
    for shard in chain_data.features(
        comparison.plan.start, comparison.encoder, 0, measured_suite.dataset.samples
    ):
        for chain, vector in shard:
            digest = chain.links[0].digest
            if isinstance(vector, np.ndarray) and digest not in known:
                known.add(digest)
                names.append(chain.sample.id)
                rows.append(vector.astype(np.float64) / np.linalg.norm(vector))
    if len(rows) < 2:
        return []
    matrix = np.stack(rows)
    pairs = []
    for low in range(0, len(matrix), _BLOCK):
        similar = matrix[low : low + _BLOCK] @ matrix.T
        for i, j in np.argwhere(similar >= NEAR).tolist():
            if j < low + i:
                pairs.append([names[j], names[low + i]])
    return pairs


def _listed(groups: Sequence[Sequence[str]]) -> str:
    more = f" and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    return "; ".join(" = ".join(group) for group in groups[:_NAMED]) + more


def constant_outputs(measured_suite: MeasuredSuite) -> Check:
    """Answers that are the same whatever is asked: descriptions and drawings of the first two steps."""
    name = "constant outputs"
    rows: list[tuple[str, int, int, int]] = []
    said: list[str] = []
    for start, plan in measured_suite.run.suite.plans.items():
        chains = list(
            measured_suite.run.chain_data.chains(start, measured_suite.dataset.samples).values()
        )
        for generation in range(1, min(2, plan.generations) + 1):
            answers = list(_answers(chains, generation))
            common = most_common(answers)
            if common is None or common.of < FEWEST_ANSWERS:
                continue
            what = "descriptions" if plan.describes(generation) else "drawings"
            different = len({answer for _, answer in answers})
            rows.append((f"{start}-first, {what}", common.of, different, common.count))
        said += [f"{start}-first chains: {sentence}" for sentence in same_answers(plan, chains)]
    figures = CheckTable(("step", "inputs", "different outputs", "most alike"), tuple(rows))
    if not rows:
        return Check(name, "not done", ("too few different inputs were answered to tell",))
    if not said:
        quiet = f"no answer is given to more than {COMMON_SHARE:.0%} of different inputs"
        return Check(name, "pass", (quiet,), (), (figures,))
    advice = (
        "look at what the model that repeats itself is given and answers: its prompt, its weights, "
        "its image size; nothing can be measured of a constant"
    )
    return Check(name, "problem", tuple(said), (advice,), (figures,))


def _answers(chains: Sequence[Chain], generation: int) -> Iterator[tuple[str, str]]:
    """Digests of an input and of what it gave, of chains that came so far."""
    for chain in chains:
        if chain.has(generation) and chain.links[generation - 1].recorded:
            yield chain.links[generation - 1].digest, chain.links[generation].digest
