"""The check of a generator: whether a seed gives a drawing again, how far seeds move the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import mean
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains import Chain, ChainPlan, Modality, Step, load_link
from pytest_cepbench.chains.chain_plan import derive_seed
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store import ImageRef
from pytest_cepbench.studies.doctor.diagnosis import Check, CheckTable, worst
from pytest_cepbench.studies.doctor.measured_suite import (
    STARTS,
    Comparison,
    Finding,
    MeasuredSuite,
    Vectors,
    distance_of,
    encode,
)

REPEATABILITY = "repeatable drawings"
"""Name of the check."""

TWICE = 8
"""Texts that the generator draws a second time."""

SEEDS = 3
"""Seeds under which a text is drawn; the first two are those that the suite was measured under."""


@dataclass(frozen=True)
class _Drawn:
    """A text of a chain and what drew it. digest, text: as the step's key has them."""

    sample: Sample
    digest: str
    text: str


def generator_repeatability(measured_suite: MeasuredSuite) -> Check:
    """Check that a seed gives a drawing again, and how far drawings of one text differ between seeds.

    Raises what drawing and encoding raise.
    """
    name = REPEATABILITY
    if "generator" not in measured_suite.run.assignments.roles:
        return Check(name, "not done", ("nothing is drawn in this suite",))
    reader = next((c for c in measured_suite.comparisons() if "image" in c.modalities), None)
    plan = reader.plan if reader else next(iter(measured_suite.run.suite.plans.values()))
    generation = 2 if plan.describes(1) else 1
    drawn = _texts(measured_suite, plan, generation)
    if not drawn:
        return Check(name, "not done", ("no description was there to be drawn",))
    findings = [_seed_twice(measured_suite, plan, generation, drawn[:TWICE], reader)]
    figures: list[CheckTable] = []
    if not measured_suite.runner("generator").bound.seeded:
        said = "the generator uses no seed: a text has one drawing"
        findings.append(("pass", said, ""))
    elif reader is not None:
        spread = _between_seeds(measured_suite, plan, generation, drawn, reader)
        if spread is not None:
            figures.append(spread[0])
            findings.append(spread[1])
    return Check(
        name,
        worst([status for status, _, _ in findings]),
        tuple(said for _, said, _ in findings),
        tuple(advice for _, _, advice in findings if advice),
        tuple(figures),
    )


def _texts(measured_suite: MeasuredSuite, plan: ChainPlan, generation: int) -> list[_Drawn]:
    """The texts that chosen chains drew first."""
    samples = measured_suite.chosen(plan.start, STARTS)
    texts = []
    for chain in measured_suite.run.chain_data.chains(plan.start, samples).values():
        text = chain.links[generation - 1].text if chain.has(generation - 1) else None
        worded = "" if text is None else plan.wording.apply(text)
        if text is not None and worded.strip():
            texts.append(_Drawn(chain.sample, digest_text(worded), plan.drawing_prompt(text)))
    return texts


def _steps(
    measured_suite: MeasuredSuite,
    plan: ChainPlan,
    generation: int,
    drawn: Sequence[_Drawn],
    seed: int,
) -> list[Step]:
    """The steps by which chains draw the texts under a seed, so that stored drawings are found."""
    runner = measured_suite.runner("generator")
    steps = []
    for text in drawn:
        own = derive_seed(seed, text.sample.id, generation)
        key = runner.key(plan.generate, own, "text", text.digest)
        steps.append(Step(key, own, _prompt(text)))
    return steps


def _prompt(text: _Drawn) -> Any:
    return lambda: text.text


def _seed_twice(
    measured_suite: MeasuredSuite,
    plan: ChainPlan,
    generation: int,
    drawn: Sequence[_Drawn],
    reader: Comparison | None,
) -> Finding:
    """The finding on texts that are drawn a second time with the same seed."""
    steps = _steps(measured_suite, plan, generation, drawn, plan.seed)
    first = measured_suite.runner("generator").generate(steps)()
    second = measured_suite.second("generator").generate(steps)()
    pairs = [
        (before, after)
        for before, after in zip(first, second, strict=True)
        if isinstance(before, ImageRef) and isinstance(after, ImageRef)
    ]
    if not pairs:
        return "remark", "no text could be drawn twice", ""
    differ = [pair for pair in pairs if pair[0].digest != pair[1].digest]
    if not differ:
        return "pass", f"the same text and seed give the same pixels ({len(pairs)} texts)", ""
    said = f"the same text and seed give other pixels ({len(differ)} of {len(pairs)} texts)"
    if reader is None:
        return "remark", said, ""
    store, other_store = measured_suite.model_pool.store, measured_suite.second_store
    images = [(store.get_image(a.digest), other_store.get_image(b.digest)) for a, b in differ]
    whole = [(a, b) for a, b in images if a is not None and b is not None]
    runner = measured_suite.second(reader.encoder)
    before, after = (
        encode(runner, "image", [(pair[side].digest, pair[side].to_pil()) for pair in whole])
        for side in (0, 1)
    )
    moved = [
        distance_of(a, b)
        for a, b in zip(before, after, strict=True)
        if a is not None and b is not None
    ]
    if not moved:
        return "remark", said, ""
    drop = fsum(moved) / len(moved)
    said += f"; to the {reader.encoder} they lie {drop:.6f} apart (1 - cosine)"
    if drop < reader.policy.tolerance:
        return "remark", said, ""
    advice = (
        "make the generator obey its seed (a random generator of its own for each image): "
        "differences between checkpoints have this noise on top, sample by sample"
    )
    return "problem", said, advice


def _between_seeds(
    measured_suite: MeasuredSuite,
    plan: ChainPlan,
    generation: int,
    drawn: Sequence[_Drawn],
    reader: Comparison,
) -> tuple[CheckTable, Finding] | None:
    """The same texts under several seeds: how alike drawings are, how their similarity scatters."""
    runner, store = measured_suite.runner("generator"), measured_suite.model_pool.store
    columns: list[list[Vectors | None]] = []
    for seed in range(plan.seed, plan.seed + SEEDS):
        results = runner.generate(_steps(measured_suite, plan, generation, drawn, seed))()
        images = [store.get_image(r.digest) if isinstance(r, ImageRef) else None for r in results]
        there = {i: (image.digest, image.to_pil()) for i, image in enumerate(images) if image}
        vectors = dict(
            zip(
                there,
                encode(measured_suite.runner(reader.encoder), "image", list(there.values())),
                strict=True,
            )
        )
        columns.append([vectors.get(i) for i in range(len(drawn))])
    rows = [
        (text, [vector for vector in row if vector is not None])
        for text, row in zip(drawn, zip(*columns, strict=True), strict=True)
    ]
    whole = [(text, row) for text, row in rows if len(row) == SEEDS]
    if not whole:
        return None
    alike = fsum(
        float(row[i] @ row[j]) for _, row in whole for i in range(SEEDS) for j in range(i)
    ) / (len(whole) * SEEDS * (SEEDS - 1) / 2)
    scatter = _scatter(measured_suite, plan, reader, whole)
    figures = CheckTable(
        ("same text, other seeds", "texts", "seeds", "similarity", "sd of the score", "tolerance"),
        (("drawings", len(whole), SEEDS, alike, scatter, reader.policy.tolerance),),
    )
    said = (
        f"two drawings of one text have a similarity of {alike:.4f}; the score of one sample "
        f"scatters by {_number(scatter)} with the seed alone (tolerance "
        f"{reader.policy.tolerance:g})"
    )
    if scatter is not None and scatter > 0:
        units = len({sample.unit for sample in measured_suite.dataset.samples})
        mean_sd = scatter / sqrt(units)
        said += f", the mean of {units} by {mean_sd:.4f}"
        if mean_sd > reader.policy.tolerance:
            advice = (
                "play every sample under several seeds ([chain] seeds), or with more samples: the "
                "seed moves the mean by more than the tolerance"
            )
            return figures, ("remark", said, advice)
    return figures, ("pass", said, "")


def _scatter(
    measured_suite: MeasuredSuite,
    plan: ChainPlan,
    reader: Comparison,
    whole: Sequence[tuple[_Drawn, list[Vectors]]],
) -> float | None:
    """Standard deviation over seeds of a drawing's similarity to its chain's start, on average."""
    samples = [text.sample for text, _ in whole]
    chains = measured_suite.run.chain_data.chains(plan.start, samples)
    starts = _encoded_starts(measured_suite, reader, [chains[sample.id] for sample in samples])
    spreads = [
        np.var([float(start @ vector) for vector in row], ddof=1)
        for start, (_, row) in zip(starts, whole, strict=True)
        if start is not None
    ]
    return sqrt(mean(map(float, spreads))) if spreads else None


def _encoded_starts(
    measured_suite: MeasuredSuite, reader: Comparison, chains: Sequence[Chain]
) -> list[Vectors | None]:
    kind: Modality = reader.kind
    inputs = []
    for chain in chains:
        artifact = load_link(chain, 0, measured_suite.model_pool.store)
        if artifact is None:
            msg = f"{chain.sample.id}: the start cannot be read again"
            raise ImageError(msg)
        inputs.append((chain.links[0].digest, artifact))
    return encode(measured_suite.runner(reader.encoder), kind, inputs)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
