"""Checks of models: what an encoder notices of known distortions, whether a generator repeats itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import mean
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.chains import Chain, ChainPlan, Modality, Step, load_link
from pytest_cepbench.chains.chain_plan import derive_seed
from pytest_cepbench.datasets.sample import Sample, load_seed_image
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store import ImageRef
from pytest_cepbench.studies.doctor.diagnosis import Cell, Check, CheckTable, Status, worst
from pytest_cepbench.studies.doctor.distortions import (
    IMAGE_DISTORTIONS,
    TEXT_DISTORTIONS,
    Distortion,
)
from pytest_cepbench.studies.doctor.setup import (
    Comparison,
    MeasuredSuite,
    Vectors,
    cosines_apart,
    encode,
)

STARTS = 24
"""About how many starts are distorted."""

TWICE = 8
"""Inputs that an encoder and a generator are asked about a second time."""

SEEDS = 3
"""Seeds under which a text is drawn; the first two are those that the suite was played under."""

SAME = 1e-6
"""Cosines nearer to 1 are those of equal vectors, but for rounding."""

REPEATABILITY = "repeatable drawings"
"""Name of the check of the generator."""

_HALF = 0.5  # of the way to chance: what a faint distortion may move a score


# -- encoders ----------------------------------------------------------------------------------------


def sensitivity_name(one: Comparison) -> str:
    """Of the check of an encoder on changed starts."""
    return f"{one.seat} on changed {one.kind}s"


def encoder_sensitivity(setup: MeasuredSuite, one: Comparison) -> Check:
    """How far known distortions of the starts move their similarity, beside the tolerance.

    A distortion that leaves a start as it is, as exchanging the colors of a grey image does, is not
    counted for it. Raises what encoding raises.
    """
    starts = _starts(setup, one)
    runner = setup.runner(one.seat)
    vectors = encode(runner, one.kind, starts)
    able = [
        (start, vector) for start, vector in zip(starts, vectors, strict=True) if vector is not None
    ]
    name = sensitivity_name(one)
    if not able:
        return Check(name, "not done", (f"not one of {len(starts)} {one.kind}s can be encoded",))
    chance = _chance(able)
    rows: list[tuple[Cell, ...]] = [_repeated(setup, one, able)]
    findings = [_repeatable(rows[0], one)]
    distortions: Sequence[Distortion[Any]] = (
        IMAGE_DISTORTIONS if one.kind == "image" else TEXT_DISTORTIONS
    )
    for distortion in distortions:
        moved = _moved(setup, one, able, distortion)
        rows.append((distortion.name, len(moved), _cosine(moved), _drop(moved), chance))
        if moved:
            findings.append(_judged(distortion, fsum(moved) / len(moved), chance, one))
    kept = [finding for finding in findings if finding is not None]
    head = ("change", "starts", "similarity", "moves the score by", "by chance")
    quiet = f"every change that matters moves the score by more than {one.policy.tolerance:g}"
    return Check(
        name,
        worst(["pass", *(status for status, _, _ in kept)]),
        tuple(said for _, said, _ in kept) or (quiet,),
        tuple(dict.fromkeys(advice for _, _, advice in kept if advice)),
        (CheckTable(head, tuple(rows)),),
    )


_Finding = tuple[Status, str, str]


def _starts(setup: MeasuredSuite, one: Comparison) -> list[tuple[str, Any]]:
    """Digest and artifact of the chosen starts, equal ones once."""
    found: dict[str, Any] = {}
    for sample in setup.chosen(one.kind, STARTS):
        if one.kind == "image":
            image = load_seed_image(sample)
            found[image.digest] = image.to_pil()
        else:
            assert sample.text is not None
            found[digest_text(sample.text)] = sample.text
    return list(found.items())


def _chance(able: Sequence[tuple[tuple[str, Any], Vectors]]) -> float | None:
    """Mean similarity of two different starts."""
    matrix = np.stack([vector for _, vector in able])
    found = list(cosines_apart(matrix, [digest for (digest, _), _ in able]))
    return fsum(found) / len(found) if found else None


def _repeated(
    setup: MeasuredSuite, one: Comparison, able: Sequence[tuple[tuple[str, Any], Vectors]]
) -> tuple[Cell, ...]:
    """The row of starts that were not changed, encoded a second time."""
    part = able[:TWICE]
    again = encode(setup.second(one.seat), one.kind, [start for start, _ in part])
    moved = [
        _apart(vector, other)
        for (_, vector), other in zip(part, again, strict=True)
        if other is not None
    ]
    return ("none, asked twice", len(moved), _cosine(moved), _drop(moved), None)


def _repeatable(row: tuple[Cell, ...], one: Comparison) -> _Finding | None:
    drop = row[3]
    if not isinstance(drop, float) or drop <= SAME:
        return None
    said = f"the same {one.kind} encoded twice moves the score by {drop:.6f}"
    advice = (
        f"make the {one.seat} repeatable (evaluation mode, one precision, no sampling): vectors are "
        "stored and never made again, so scores would depend on who made them first"
    )
    return ("problem" if drop >= one.policy.tolerance else "remark"), said, advice


def _moved(
    setup: MeasuredSuite,
    one: Comparison,
    able: Sequence[tuple[tuple[str, Any], Vectors]],
    distortion: Distortion[Any],
) -> list[float]:
    """1 - the similarity of each distorted start to its own start, where it changed at all."""
    changed = []
    for (digest, start), vector in able:
        if one.kind == "image":
            image = distortion.apply(ImageArtifact.from_pil(start))
            made: tuple[str, Any] = (image.digest, image.to_pil())
        else:
            text = distortion.apply(start)
            made = (digest_text(text), text)
        if made[0] != digest and (one.kind == "image" or made[1].strip()):
            changed.append((made, vector))
    encoded = encode(setup.runner(one.seat), one.kind, [made for made, _ in changed])
    return [
        _apart(vector, other)
        for (_, vector), other in zip(changed, encoded, strict=True)
        if other is not None
    ]


def _apart(one: Vectors, other: Vectors) -> float:
    """1 - their cosine; the vectors are of unit length, but for rounding."""
    return max(0.0, 1.0 - float(one @ other))


def _cosine(moved: Sequence[float]) -> float | None:
    return 1 - fsum(moved) / len(moved) if moved else None


def _drop(moved: Sequence[float]) -> float | None:
    return fsum(moved) / len(moved) if moved else None


def _judged(
    distortion: Distortion[Any], drop: float, chance: float | None, one: Comparison
) -> _Finding | None:
    """What is to be said of a distortion that moves the score so far."""
    what, tolerance = distortion.name, one.policy.tolerance
    if distortion.unnoticed == "pass":
        if chance is None or drop <= _HALF * (1 - chance):
            return None
        said = f"{what}: moves the score by {drop:.4f}, more than half of the way to chance ({chance:.4f})"
        return "remark", said, f"use an {one.seat} that looks less at sharpness, or sharper images"
    if drop < tolerance:
        said = f"{what}: moves the score by {drop:.4f}, less than the tolerance {tolerance:g}"
        advice = (
            f"use another {one.seat}, or a smaller tolerance: a checkpoint that makes such a mistake in "
            f"every {one.kind} would be held"
        )
        return distortion.unnoticed, said, advice if distortion.unnoticed == "problem" else ""
    if one.visible is not None and drop < one.visible:
        said = (
            f"{what}: moves the score by {drop:.4f}, and the smallest drop that shows is "
            f"{one.visible:.4f}"
        )
        return "remark", said, ""
    return None


# -- generators --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawn:
    """A text of a chain and what drew it. digest, text: as the step's key has them."""

    sample: Sample
    digest: str
    text: str


def generator_repeatability(setup: MeasuredSuite) -> Check:
    """How far drawings of one text differ between seeds, and whether a seed gives a drawing again.

    Raises what drawing and encoding raise.
    """
    name = REPEATABILITY
    if "generator" not in setup.run.lineup.seats:
        return Check(name, "not done", ("nothing is drawn in this suite",))
    reader = next((c for c in setup.comparisons() if "image" in c.modalities), None)
    plan = reader.plan if reader else next(iter(setup.run.suite.plans.values()))
    generation = 2 if plan.describes(1) else 1
    drawn = _texts(setup, plan, generation)
    if not drawn:
        return Check(name, "not done", ("no description was there to be drawn",))
    findings = [_seed_twice(setup, plan, generation, drawn[:TWICE], reader)]
    figures: list[CheckTable] = []
    if not setup.runner("generator").bound.seeded:
        said = "the generator uses no seed: a text has one drawing"
        findings.append(("pass", said, ""))
    elif reader is not None:
        spread = _between_seeds(setup, plan, generation, drawn, reader)
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


def _texts(setup: MeasuredSuite, plan: ChainPlan, generation: int) -> list[_Drawn]:
    """The texts that chosen chains drew first."""
    samples = setup.chosen(plan.start, STARTS)
    found = []
    for chain in setup.run.evidence.chains(plan.start, samples).values():
        text = chain.links[generation - 1].text if chain.has(generation - 1) else None
        worded = "" if text is None else plan.wording.apply(text)
        if text is not None and worded.strip():
            found.append(_Drawn(chain.sample, digest_text(worded), plan.drawing_prompt(text)))
    return found


def _steps(
    setup: MeasuredSuite, plan: ChainPlan, generation: int, drawn: Sequence[_Drawn], seed: int
) -> list[Step]:
    """As chains draw them under a run's seed, so that what was drawn is in the store."""
    runner = setup.runner("generator")
    steps = []
    for one in drawn:
        own = derive_seed(seed, one.sample.id, generation)
        key = runner.key(plan.generate, own, "text", one.digest)
        steps.append(Step(key, own, _prompt(one)))
    return steps


def _prompt(one: _Drawn) -> Any:
    return lambda: one.text


def _seed_twice(
    setup: MeasuredSuite,
    plan: ChainPlan,
    generation: int,
    drawn: Sequence[_Drawn],
    reader: Comparison | None,
) -> _Finding:
    """Whether the same text and seed give the same drawing, when the model is asked once more."""
    steps = _steps(setup, plan, generation, drawn, plan.seed)
    first = setup.runner("generator").generate(steps)()
    second = setup.second("generator").generate(steps)()
    pairs = [
        (one, other)
        for one, other in zip(first, second, strict=True)
        if isinstance(one, ImageRef) and isinstance(other, ImageRef)
    ]
    if not pairs:
        return "remark", "no text could be drawn twice", ""
    differ = [pair for pair in pairs if pair[0].digest != pair[1].digest]
    if not differ:
        return "pass", f"the same text and seed give the same pixels ({len(pairs)} texts)", ""
    said = f"the same text and seed give other pixels ({len(differ)} of {len(pairs)} texts)"
    if reader is None:
        return "remark", said, ""
    store, other_store = setup.roster.store, setup.again
    images = [(store.get_image(a.digest), other_store.get_image(b.digest)) for a, b in differ]
    whole = [(a, b) for a, b in images if a is not None and b is not None]
    runner = setup.second(reader.seat)
    before, after = (
        encode(runner, "image", [(pair[side].digest, pair[side].to_pil()) for pair in whole])
        for side in (0, 1)
    )
    moved = [
        _apart(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None
    ]
    if not moved:
        return "remark", said, ""
    drop = fsum(moved) / len(moved)
    said += f"; to the {reader.seat} they lie {drop:.6f} apart (1 - cosine)"
    if drop < reader.policy.tolerance:
        return "remark", said, ""
    advice = (
        "make the generator obey its seed (a random generator of its own for each image): "
        "differences between checkpoints have this noise on top, sample by sample"
    )
    return "problem", said, advice


def _between_seeds(
    setup: MeasuredSuite,
    plan: ChainPlan,
    generation: int,
    drawn: Sequence[_Drawn],
    reader: Comparison,
) -> tuple[CheckTable, _Finding] | None:
    """The same texts under several seeds: how alike drawings are, how their similarity scatters."""
    runner, store = setup.runner("generator"), setup.roster.store
    columns: list[list[Vectors | None]] = []
    for seed in range(plan.seed, plan.seed + SEEDS):
        results = runner.generate(_steps(setup, plan, generation, drawn, seed))()
        images = [store.get_image(r.digest) if isinstance(r, ImageRef) else None for r in results]
        there = {i: (image.digest, image.to_pil()) for i, image in enumerate(images) if image}
        vectors = dict(
            zip(
                there, encode(setup.runner(reader.seat), "image", list(there.values())), strict=True
            )
        )
        columns.append([vectors.get(i) for i in range(len(drawn))])
    rows = [
        (one, [vector for vector in row if vector is not None])
        for one, row in zip(drawn, zip(*columns, strict=True), strict=True)
    ]
    whole = [(one, row) for one, row in rows if len(row) == SEEDS]
    if not whole:
        return None
    alike = fsum(
        float(row[i] @ row[j]) for _, row in whole for i in range(SEEDS) for j in range(i)
    ) / (len(whole) * SEEDS * (SEEDS - 1) / 2)
    scatter = _scatter(setup, plan, reader, whole)
    figures = CheckTable(
        ("same text, other seeds", "texts", "seeds", "similarity", "sd of the score", "tolerance"),
        (("drawings", len(whole), SEEDS, alike, scatter, reader.policy.tolerance),),
    )
    said = (
        f"two drawings of one text have a similarity of {alike:.4f}; the score of one sample scatters "
        f"by {_number(scatter)} with the seed alone (tolerance {reader.policy.tolerance:g})"
    )
    if scatter is not None and scatter > 0:
        units = len({sample.unit for sample in setup.dataset.samples})
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
    setup: MeasuredSuite,
    plan: ChainPlan,
    reader: Comparison,
    whole: Sequence[tuple[_Drawn, list[Vectors]]],
) -> float | None:
    """Standard deviation over seeds of a drawing's similarity to its chain's start, on average."""
    samples = [one.sample for one, _ in whole]
    chains = setup.run.evidence.chains(plan.start, samples)
    starts = _encoded_starts(setup, reader, [chains[sample.id] for sample in samples])
    spreads = [
        np.var([float(start @ vector) for vector in row], ddof=1)
        for start, (_, row) in zip(starts, whole, strict=True)
        if start is not None
    ]
    return sqrt(mean(map(float, spreads))) if spreads else None


def _encoded_starts(
    setup: MeasuredSuite, reader: Comparison, chains: Sequence[Chain]
) -> list[Vectors | None]:
    kind: Modality = reader.kind
    inputs = []
    for chain in chains:
        artifact = load_link(chain, 0, setup.roster.store)
        if artifact is None:
            msg = f"{chain.sample.id}: the start cannot be read again"
            raise ImageError(msg)
        inputs.append((chain.links[0].digest, artifact))
    return encode(setup.runner(reader.seat), kind, inputs)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
