"""The check of a generator: whether a seed gives a drawing again, how far seeds move the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, sqrt
from statistics import fmean

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.chains import ChainPlan, Step, load_link
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store import ImageRef
from pytest_cepbench.studies.doctor.diagnosis import (
    TWICE,
    Check,
    CheckTable,
    Comparison,
    Finding,
    MeasuredSuite,
    Vector,
    always,
    check_of,
    distances,
    encode,
)

REPEATABILITY = "repeatable drawings"
"""Name of the check."""

SEEDS = 3
"""Seeds under which a text is drawn; the first two are those that the suite was measured under."""


@dataclass(frozen=True)
class _Drawn:
    """A text of a chain. digest: of the text in the key of its step."""

    sample: Sample
    digest: str
    text: str


@dataclass(frozen=True)
class _Texts:
    """The texts that chosen chains drew first.

    plan: of the chains.
    generation: of the drawings.
    reader: the encoder that compares the drawings with starts, if any.
    """

    plan: ChainPlan
    generation: int
    drawn: Sequence[_Drawn]
    reader: Comparison | None

    def steps(self, suite: MeasuredSuite, seed: int, most: int | None = None) -> list[Step]:
        """The steps by which the chains draw under a seed, so that stored drawings are found."""
        runner, plan = suite.runner("generator"), self.plan
        steps = []
        for drawn in self.drawn[:most]:
            own = derive_seed(seed, drawn.sample.id, self.generation)
            key = runner.key(plan.generate, own, "text", drawn.digest)
            steps.append(Step(key, own, always(drawn.text)))
        return steps


def generator_repeatability(suite: MeasuredSuite) -> Check:
    """Check that a seed repeats its drawing, and how far drawings of one text differ between seeds.

    Raises what drawing and encoding raise.
    """
    if "generator" not in suite.run.assignments.roles:
        return Check(REPEATABILITY, "not done", ("nothing is drawn in this suite",))
    reader = next((c for c in suite.comparisons() if c.reads_images), None)
    plan = reader.plan if reader else next(iter(suite.run.suite.plans.values()))
    texts = _texts(suite, plan, reader)
    if not texts.drawn:
        return Check(REPEATABILITY, "not done", ("no description was there to be drawn",))
    findings = [_drawn_twice(suite, texts)]
    tables: list[CheckTable] = []
    if not suite.runner("generator").bound.seeded:
        findings.append(("pass", "the generator uses no seed: a text has one drawing", ""))
    elif reader is not None:
        between = _between_seeds(suite, texts, reader)
        if between is not None:
            tables.append(between[0])
            findings.append(between[1])
    return check_of(REPEATABILITY, findings, "", *tables)


def _texts(suite: MeasuredSuite, plan: ChainPlan, reader: Comparison | None) -> _Texts:
    generation = 2 if plan.describes(1) else 1
    drawn = []
    samples = suite.chosen(plan.start)
    for chain in suite.run.chain_data.chains(plan.start, samples).values():
        text = chain.links[generation - 1].text if chain.has(generation) else None
        worded = "" if text is None else plan.caption_rules.apply(text)
        if text is not None and worded.strip():
            drawn.append(_Drawn(chain.sample, digest_text(worded), plan.drawing_prompt(text)))
    return _Texts(plan, generation, drawn, reader)


def _drawn_twice(suite: MeasuredSuite, texts: _Texts) -> Finding:
    """The finding on texts that are drawn a second time with the same seed."""
    steps = texts.steps(suite, texts.plan.seed, TWICE)
    pairs = [
        (first.digest, second.digest)
        for first, second in zip(
            suite.runner("generator").ask("generate", steps),
            suite.second("generator").ask("generate", steps),
            strict=True,
        )
        if isinstance(first, ImageRef) and isinstance(second, ImageRef)
    ]
    if not pairs:
        return "remark", "no text could be drawn twice", ""
    differ = [pair for pair in pairs if pair[0] != pair[1]]
    if not differ:
        return "pass", f"the same text and seed give the same pixels ({len(pairs)} texts)", ""
    sentence = f"the same text and seed give other pixels ({len(differ)} of {len(pairs)} texts)"
    reader = texts.reader
    if reader is None:
        return "remark", sentence, ""
    store, second_store = suite.model_pool.store, suite.second_store
    images = [(store.get_image(a), second_store.get_image(b)) for a, b in differ]
    whole = [(a, b) for a, b in images if a is not None and b is not None]
    moved = distances(
        _vectors(suite, reader, [first for first, _ in whole], again=True),
        _vectors(suite, reader, [second for _, second in whole], again=True),
    )
    if not moved:
        return "remark", sentence, ""
    drop = fsum(moved) / len(moved)
    sentence += f"; to the {reader.encoder} they lie {drop:.6f} apart (1 - cosine)"
    if drop < reader.policy.tolerance:
        return "remark", sentence, ""
    advice = (
        "make the generator obey its seed (a random generator of its own for each image): "
        "differences between checkpoints have this noise on top, sample by sample"
    )
    return "problem", sentence, advice


def _vectors(
    suite: MeasuredSuite,
    reader: Comparison,
    images: Sequence[ImageArtifact],
    *,
    again: bool = False,
) -> list[Vector | None]:
    """The vectors of images. again: they are of no chain, and stay out of the user's store."""
    runner = suite.second(reader.encoder) if again else suite.runner(reader.encoder)
    return encode(runner, "image", [(image.digest, image.to_pil()) for image in images])


def _between_seeds(
    suite: MeasuredSuite, texts: _Texts, reader: Comparison
) -> tuple[CheckTable, Finding] | None:
    """The same texts under several seeds: how alike drawings are, how their similarity scatters."""
    store, plan = suite.model_pool.store, texts.plan
    rows: list[list[Vector]] = [[] for _ in texts.drawn]
    for seed in range(plan.seed, plan.seed + SEEDS):
        results = suite.runner("generator").ask("generate", texts.steps(suite, seed))
        images = [store.get_image(r.digest) if isinstance(r, ImageRef) else None for r in results]
        there = [(row, image) for row, image in zip(rows, images, strict=True) if image is not None]
        vectors = _vectors(suite, reader, [image for _, image in there])
        for (own, _), vector in zip(there, vectors, strict=True):
            own.extend([] if vector is None else [vector])
    whole = [(d.sample, row) for d, row in zip(texts.drawn, rows, strict=True) if len(row) == SEEDS]
    if not whole:
        return None
    alike = fmean(float(a @ b) for _, row in whole for a, b in combinations(row, 2))
    scatter = _scatter(suite, plan, reader, whole)
    tolerance = reader.policy.tolerance
    table = CheckTable(
        ("same text, other seeds", "texts", "seeds", "similarity", "sd of the score", "tolerance"),
        (("drawings", len(whole), SEEDS, alike, scatter, tolerance),),
    )
    sentence = (
        f"two drawings of one text have a similarity of {alike:.4f}; the score of one sample "
        f"scatters by {'-' if scatter is None else f'{scatter:.4f}'} with the seed alone "
        f"(tolerance {tolerance:g})"
    )
    if scatter:
        units = len({sample.unit for sample in suite.dataset.samples})
        mean_sd = scatter / sqrt(units)
        sentence += f", the mean of {units} by {mean_sd:.4f}"
        if mean_sd > tolerance:
            advice = (
                "play every sample under several seeds ([chain] seeds), or with more samples: the "
                "seed moves the mean by more than the tolerance"
            )
            return table, ("remark", sentence, advice)
    return table, ("pass", sentence, "")


def _scatter(
    suite: MeasuredSuite,
    plan: ChainPlan,
    reader: Comparison,
    whole: Sequence[tuple[Sample, list[Vector]]],
) -> float | None:
    """Standard deviation over seeds of a drawing's similarity to its chain's start, on average."""
    chains = suite.run.chain_data.chains(plan.start, [sample for sample, _ in whole])
    starts = []
    for sample, _ in whole:
        artifact = load_link(chains[sample.id], 0, suite.model_pool.store)
        if artifact is None:
            raise ImageError(f"{sample.id}: the start cannot be read again")
        starts.append((chains[sample.id].links[0].digest, artifact))
    vectors = encode(suite.runner(reader.encoder), reader.kind, starts)
    variances = [
        float(np.var([float(start @ vector) for vector in row], ddof=1))
        for start, (_, row) in zip(vectors, whole, strict=True)
        if start is not None
    ]
    return sqrt(fmean(variances)) if variances else None
