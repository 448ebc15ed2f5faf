"""The doctor on encoders and generators: whether they see faults and repeat themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, sqrt
from statistics import fmean
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from pytest_cepbench.artifacts import (
    MODALITIES,
    Artifact,
    ImageArtifact,
    Modality,
    Sound,
    digest_text,
)
from pytest_cepbench.artifacts.modality import as_given
from pytest_cepbench.chains import ChainPlan, Step, load_link
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.datasets.sample import Sample, load_seed
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store import ArtifactRef
from pytest_cepbench.studies.doctor.diagnosis import (
    TWICE,
    Cell,
    Check,
    CheckTable,
    EncoderComparison,
    Finding,
    MeasuredSuite,
    Vector,
    always,
    check_of,
    distances,
    encode,
)

A = TypeVar("A", ImageArtifact, Sound, str)

FAINT_BLUR, MIDDLE_BLUR, STRONG_BLUR = 1 / 256, 1 / 64, 1 / 16
"""Standard deviations of the blurs, as shares of the image's shorter side."""

CROP_SIDE = 0.7
"""Of each side: what the crop keeps, about half of the area, brought back to the image's size."""

COVERED_SIDE = 1 / 3
"""Of each side: what the covered region takes, a ninth of the area."""

SAME = 1e-6
"""Cosines nearer to 1 are those of equal vectors, but for rounding."""

_HALF = 0.5  # of the way to chance: what a faint distortion may move a score

_WORD = re.compile(r"\w[\w'-]*")

Start = tuple[str, Any]
"""Digest of a start, and what the encoder takes: a Pillow image, a sound or a text."""


# -- the distortions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distortion(Generic[A]):
    """One distortion. Gives the same result everywhere, up to the resampling of Pillow.

    name: in tables.
    unnoticed: status where an encoder does not notice it; "pass" for a change that does not matter.
    apply: the distortion as a pure function.
    """

    name: str
    unnoticed: Literal["pass", "remark", "problem"]
    apply: Callable[[A], A]


def blurred(image: ImageArtifact, share: float) -> ImageArtifact:
    """The image under a Gaussian blur. share: its standard deviation, of the shorter side."""
    radius = share * min(image.size)
    return ImageArtifact.from_pil(image.to_pil().filter(ImageFilter.GaussianBlur(radius)))


def cropped(image: ImageArtifact) -> ImageArtifact:
    """The middle of the image, at the size of the whole."""
    width, height = image.size
    across, down = width * (1 - CROP_SIDE) / 2, height * (1 - CROP_SIDE) / 2
    box = (across, down, width - across, height - down)
    made = image.to_pil().resize((width, height), Image.Resampling.BILINEAR, box=box)
    return ImageArtifact.from_pil(made)


def recolored(image: ImageArtifact) -> ImageArtifact:
    """The image with its channels exchanged in turn: red becomes green, green blue, blue red."""
    return ImageArtifact(image.pixels[:, :, [2, 0, 1]])


def region_covered(image: ImageArtifact) -> ImageArtifact:
    """The image without its most detailed region, over which the surroundings are drawn.

    The region is the one of its size with the largest sum of differences between neighboring
    pixels; it is filled by the mean of two interpolations, between the rows above and below it and
    between the columns beside it.
    """
    pixels = image.pixels.astype(np.float64)
    height, width = pixels.shape[:2]
    tall, wide = max(1, round(height * COVERED_SIDE)), max(1, round(width * COVERED_SIDE))
    if tall >= height or wide >= width:
        return image
    detail = np.zeros((height + 1, width + 1))
    detail[1:height, 1:] += np.abs(np.diff(pixels, axis=0)).sum(axis=2)
    detail[1:, 1:width] += np.abs(np.diff(pixels, axis=1)).sum(axis=2)
    sums = detail.cumsum(axis=0).cumsum(axis=1)
    regions = sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]
    place = int(regions.round(6).argmax())  # the first of equals
    top, left = place // regions.shape[1], place % regions.shape[1]
    filled = pixels.copy()
    region = (slice(top, top + tall), slice(left, left + wide))
    down = _between(
        pixels[top - 1, region[1]] if top else None,
        pixels[top + tall, region[1]] if top + tall < height else None,
        tall,
    )
    across = _between(
        pixels[region[0], left - 1] if left else None,
        pixels[region[0], left + wide] if left + wide < width else None,
        wide,
    ).transpose(1, 0, 2)
    filled[region] = (down + across) / 2
    return ImageArtifact(np.rint(filled).astype(np.uint8))


def _between(
    first: npt.NDArray[np.float64] | None, last: npt.NDArray[np.float64] | None, steps: int
) -> npt.NDArray[np.float64]:
    """(steps, n, 3) from one line of pixels to another; one alone is repeated."""
    start, end = (last if first is None else first), (first if last is None else last)
    assert start is not None
    assert end is not None
    weight = (np.arange(1, steps + 1) / (steps + 1))[:, None, None]
    mixed: npt.NDArray[np.float64] = (1 - weight) * start + weight * end
    return mixed


def word_dropped(text: str) -> str:
    """The text without its longest word, the first of equals."""
    words = list(_WORD.finditer(text))
    if len(words) < 2:
        return text
    longest = max(words, key=lambda word: len(word[0]))
    return " ".join((text[: longest.start()] + text[longest.end() :]).split())


def words_swapped(text: str) -> str:
    """The text with its two longest different words exchanged, the first of equals."""
    words = sorted(_WORD.finditer(text), key=lambda word: -len(word[0]))
    others = [word for word in words if word[0].lower() != words[0][0].lower()]
    if not others:
        return text
    first, second = sorted((words[0], others[0]), key=lambda word: word.start())
    return (
        text[: first.start()]
        + second[0]
        + text[first.end() : second.start()]
        + first[0]
        + text[second.end() :]
    )


def negated(text: str) -> str:
    """The text denied as a whole."""
    return f"It is not true that {text[:1].lower()}{text[1:]}"


IMAGE_DISTORTIONS: tuple[Distortion[ImageArtifact], ...] = (
    Distortion("faint blur", "pass", lambda image: blurred(image, FAINT_BLUR)),
    Distortion("middle blur", "pass", lambda image: blurred(image, MIDDLE_BLUR)),
    Distortion("strong blur", "problem", lambda image: blurred(image, STRONG_BLUR)),
    Distortion("crop", "problem", cropped),
    Distortion("colors exchanged", "problem", recolored),
    Distortion("region covered", "problem", region_covered),
)
"""Of image starts. Two faint ones, which an encoder may or may not notice, come first."""

TEXT_DISTORTIONS: tuple[Distortion[str], ...] = (
    Distortion("word dropped", "problem", word_dropped),
    Distortion("words swapped", "problem", words_swapped),
    Distortion("negation", "remark", negated),
)
"""Of text starts. Few encoders of texts notice a negation, and captions hold few."""


def half_silent(sound: Sound) -> Sound:
    """The second half of a sound taken out."""
    samples = sound.samples.copy()
    samples[(len(samples) + 1) // 2 :] = 0
    return Sound(samples, sound.rate)


def higher(sound: Sound) -> Sound:
    """A sound that is played faster, three semitones higher, for as long as it was."""
    faster = sound.resampled(round(sound.rate * 2 ** (-3 / 12)))
    return Sound(np.resize(faster.samples, len(sound.samples)), sound.rate)


SOUND_DISTORTIONS: tuple[Distortion[Sound], ...] = (
    Distortion(
        "half as loud", "pass", lambda sound: Sound(sound.samples / np.float32(2), sound.rate)
    ),
    Distortion("second half silent", "problem", half_silent),
    Distortion("three semitones up", "problem", higher),
)
"""Of sound starts."""

DISTORTIONS: Mapping[Modality, Sequence[Distortion[Any]]] = {
    "image": IMAGE_DISTORTIONS,
    "text": TEXT_DISTORTIONS,
    "sound": SOUND_DISTORTIONS,
}


# -- the check -------------------------------------------------------------------------------------


def sensitivity_name(comparison: EncoderComparison) -> str:
    """The name of the check of an encoder on changed starts."""
    return f"{comparison.encoder} on changed {comparison.kind}s"


def encoder_sensitivity(suite: MeasuredSuite, comparison: EncoderComparison) -> Check:
    """Check how far known distortions of the starts move their similarity, beside the tolerance.

    A distortion that leaves a start as it is, as exchanging the colors of a grey image does, is not
    counted for it. Raises what encoding raises.
    """
    name, kind = sensitivity_name(comparison), comparison.kind
    starts = _starts(suite, comparison)
    runner = suite.runner(comparison.encoder)
    vectors = encode(runner, kind, starts)
    able = [(s, vector) for s, vector in zip(starts, vectors, strict=True) if vector is not None]
    if not able:
        return Check(name, "not done", (f"not one of {len(starts)} {kind}s can be encoded",))
    similarities = [float(a @ b) for (_, a), (_, b) in combinations(able, 2)]
    chance = fsum(similarities) / len(similarities) if similarities else None
    again = encode(suite.second(comparison.encoder), kind, [start for start, _ in able[:TWICE]])
    moved = distances([vector for _, vector in able[:TWICE]], again)
    rows = [_row("none, asked twice", moved, None)]
    findings: list[Finding] = []
    drop, tolerance = fsum(moved) / len(moved) if moved else 0.0, comparison.policy.tolerance
    if drop > SAME:
        sentence = f"the same {kind} encoded twice moves the score by {drop:.6f}"
        advice = (
            f"make the {comparison.encoder} repeatable (evaluation mode, one precision, no "
            "sampling): vectors are stored and never made again, so scores would depend on who "
            "made them first"
        )
        findings.append(("problem" if drop >= tolerance else "remark", sentence, advice))
    for distortion in DISTORTIONS[kind]:
        changed: list[tuple[Start, Vector]] = []
        for (digest, artifact), vector in able:
            if kind == "text":
                text = distortion.apply(artifact)
                if text != artifact and text.strip():
                    changed.append(((digest_text(text), text), vector))
            else:
                image = kind == "image"
                made = distortion.apply(ImageArtifact.from_pil(artifact) if image else artifact)
                if made.digest != digest:
                    changed.append(((made.digest, as_given(made)), vector))
        moved = distances(
            [vector for _, vector in changed],
            encode(runner, kind, [distorted for distorted, _ in changed]),
        )
        rows.append(_row(distortion.name, moved, chance))
        if moved:
            findings += _findings(distortion, fsum(moved) / len(moved), chance, comparison)
    summary = f"every change that matters moves the score by more than {tolerance:g}"
    head = ("change", "starts", "similarity", "moves the score by", "by chance")
    return check_of(name, findings, summary, CheckTable(head, tuple(rows)))


def _starts(suite: MeasuredSuite, comparison: EncoderComparison) -> list[Start]:
    """The chosen starts, equal ones once."""
    starts: dict[str, Any] = {}
    for sample in suite.chosen(comparison.kind):
        if comparison.kind == "text":
            assert sample.text is not None
            starts[digest_text(sample.text)] = sample.text
        else:
            artifact = load_seed(sample, comparison.kind)
            starts[artifact.digest] = as_given(artifact)
    return list(starts.items())


def _row(name: str, moved: Sequence[float], chance: float | None) -> tuple[Cell, ...]:
    drop = fsum(moved) / len(moved) if moved else None
    return (name, len(moved), None if drop is None else 1 - drop, drop, chance)


def _findings(
    distortion: Distortion[Any], drop: float, chance: float | None, comparison: EncoderComparison
) -> list[Finding]:
    """The finding on a distortion that moves the score so far, if any."""
    tolerance, visible = comparison.policy.tolerance, comparison.visible
    sentence = f"{distortion.name}: moves the score by {drop:.4f}"
    if distortion.unnoticed == "pass":
        if chance is None or drop <= _HALF * (1 - chance):
            return []
        sentence += f", more than half of the way to chance ({chance:.4f})"
        advice = f"use an {comparison.encoder} that looks less at sharpness, or sharper images"
        return [("remark", sentence, advice)]
    if drop < tolerance:
        advice = (
            f"use another {comparison.encoder}, or a smaller tolerance: a checkpoint that makes "
            f"such a mistake in every {comparison.kind} would be held"
        )
        sentence += f", less than the tolerance {tolerance:g}"
        return [
            (distortion.unnoticed, sentence, advice if distortion.unnoticed == "problem" else "")
        ]
    if visible is not None and drop < visible:
        rare = f"{sentence}, and the smallest drop that fails in 80 % of runs is {visible:.4f}"
        return [("remark", rare, "")]
    return []


REPEATABILITY = "repeatable drawings"
"""Name of the check."""

SEEDS = 3
"""Seeds under which a text is drawn; the first two are those that the suite was measured under."""


@dataclass(frozen=True)
class _Texts:
    """The texts that chosen chains drew first.

    plan: of the chains.
    generation: of the drawings.
    drawn: sample, digest of the text in the key of its step, and what is drawn.
    comparison: the encoder that compares the drawings with starts, if any.
    """

    plan: ChainPlan
    generation: int
    drawn: Sequence[tuple[Sample, str, str]]
    comparison: EncoderComparison | None

    def steps(self, suite: MeasuredSuite, seed: int, most: int | None = None) -> list[Step]:
        """The steps by which the chains draw under a seed, so that stored drawings are found."""
        runner, plan = suite.runner("generator"), self.plan
        steps = []
        for sample, digest, text in self.drawn[:most]:
            own = derive_seed(seed, sample.id, self.generation)
            key = runner.key(plan.generate, own, "text", digest)
            steps.append(Step(key, own, always(text)))
        return steps


def generator_repeatability(suite: MeasuredSuite) -> Check:
    """Check that a seed repeats its drawing, and how far drawings of one text differ between seeds.

    Raises what drawing and encoding raise.
    """
    if "generator" not in suite.run.assignments.roles:
        return Check(REPEATABILITY, "not done", ("nothing is drawn in this suite",))
    comparison = next((c for c in suite.comparisons() if c.reads_drawings), None)
    plan = comparison.plan if comparison else next(iter(suite.run.suite.plans.values()))
    texts = _texts(suite, plan, comparison)
    if not texts.drawn:
        return Check(REPEATABILITY, "not done", ("no description was there to be drawn",))
    findings = [_drawn_twice(suite, texts)]
    tables: list[CheckTable] = []
    if not suite.runner("generator").bound.seeded:
        findings.append(("pass", "the generator uses no seed: a text has one drawing", ""))
    elif comparison is not None:
        between = _between_seeds(suite, texts, comparison)
        if between is not None:
            tables.append(between[0])
            findings.append(between[1])
    return check_of(REPEATABILITY, findings, "", *tables)


def _texts(suite: MeasuredSuite, plan: ChainPlan, comparison: EncoderComparison | None) -> _Texts:
    generation = 2 if plan.describes(1) else 1
    drawn = []
    samples = suite.chosen(plan.start)
    for chain in suite.run.chain_data.chains(plan.start, samples).values():
        text = chain.links[generation - 1].text if chain.has(generation) else None
        worded = "" if text is None else plan.caption_rules.apply(text)
        if text is not None and worded.strip():
            drawn.append((chain.sample, digest_text(worded), plan.drawing_prompt(text)))
    return _Texts(plan, generation, drawn, comparison)


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
        if isinstance(first, ArtifactRef) and isinstance(second, ArtifactRef)
    ]
    if not pairs:
        return "remark", "no text could be drawn twice", ""
    content = MODALITIES[texts.plan.makes].content
    differ = [pair for pair in pairs if pair[0] != pair[1]]
    if not differ:
        return "pass", f"the same text and seed give the same {content} ({len(pairs)} texts)", ""
    sentence = f"the same text and seed give other {content} ({len(differ)} of {len(pairs)} texts)"
    comparison = texts.comparison
    if comparison is None:
        return "remark", sentence, ""
    store, second_store = suite.model_pool.store, suite.second_store
    images = [(store.get_artifact(a), second_store.get_artifact(b)) for a, b in differ]
    whole = [(a, b) for a, b in images if a is not None and b is not None]
    moved = distances(
        _vectors(suite, comparison, [first for first, _ in whole], again=True),
        _vectors(suite, comparison, [second for _, second in whole], again=True),
    )
    if not moved:
        return "remark", sentence, ""
    drop = fsum(moved) / len(moved)
    sentence += f"; to the {comparison.encoder} they lie {drop:.6f} apart (1 - cosine)"
    if drop < comparison.policy.tolerance:
        return "remark", sentence, ""
    advice = (
        "make the generator obey its seed (a random generator of its own for each image): "
        "differences between checkpoints have this noise on top, sample by sample"
    )
    return "problem", sentence, advice


def _vectors(
    suite: MeasuredSuite,
    comparison: EncoderComparison,
    images: Sequence[Artifact],
    *,
    again: bool = False,
) -> list[Vector | None]:
    """The vectors of drawings. again: they are of no chain, and stay out of the user's store."""
    runner = suite.second(comparison.encoder) if again else suite.runner(comparison.encoder)
    kind = comparison.plan.makes
    return encode(runner, kind, [(image.digest, as_given(image)) for image in images])


def _between_seeds(
    suite: MeasuredSuite, texts: _Texts, comparison: EncoderComparison
) -> tuple[CheckTable, Finding] | None:
    """The same texts under several seeds: how alike drawings are, how their similarity scatters."""
    store, plan = suite.model_pool.store, texts.plan
    rows: list[list[Vector]] = [[] for _ in texts.drawn]
    for seed in range(plan.seed, plan.seed + SEEDS):
        results = suite.runner("generator").ask("generate", texts.steps(suite, seed))
        images = [
            store.get_artifact(r.digest) if isinstance(r, ArtifactRef) else None for r in results
        ]
        there = [(row, image) for row, image in zip(rows, images, strict=True) if image is not None]
        vectors = _vectors(suite, comparison, [image for _, image in there])
        for (own, _), vector in zip(there, vectors, strict=True):
            own.extend([] if vector is None else [vector])
    drawn = zip(texts.drawn, rows, strict=True)
    whole = [(sample, row) for (sample, *_), row in drawn if len(row) == SEEDS]
    if not whole:
        return None
    alike = fmean(float(a @ b) for _, row in whole for a, b in combinations(row, 2))
    scatter = _scatter(suite, plan, comparison, whole)
    tolerance = comparison.policy.tolerance
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
    comparison: EncoderComparison,
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
    vectors = encode(suite.runner(comparison.encoder), comparison.kind, starts)
    variances = [
        float(np.var([float(start @ vector) for vector in row], ddof=1))
        for start, (_, row) in zip(vectors, whole, strict=True)
        if start is not None
    ]
    return sqrt(fmean(variances)) if variances else None
