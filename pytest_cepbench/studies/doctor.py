"""The doctor: whether a suite as it is set up can see anything, checked before it gates.

The suite is measured under a few seeds. What is looked for: cases that cannot be measured, scores
at chance, tolerances and noise beyond what a score can lose, seeds without effect, answers that
never change, and encoders that do not notice damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, fsum, isfinite
from typing import Any, Literal

import numpy as np
from PIL import ImageFilter

from pytest_cepbench.artifacts import (
    MODALITIES,
    Failure,
    ImageArtifact,
    Modality,
    Sound,
    digest_text,
)
from pytest_cepbench.chains import Step
from pytest_cepbench.datasets.sample import load_seed
from pytest_cepbench.errors import CepError, StoreError
from pytest_cepbench.gate.baseline import record_of
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.sensitivity import largest_drop, range_of
from pytest_cepbench.gate.statistics.constants import SMALL_SHARE, SMALLEST_SHARE
from pytest_cepbench.measures.blindness import same_answers
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.measures.chain_similarity import SimilarityMeasure
from pytest_cepbench.metrics.diversity import COMMON_SHARE, FEWEST_ANSWERS, most_common
from pytest_cepbench.studies.calibration import Announce, Calibrated, PreparedCalibration, calibrate
from pytest_cepbench.studies.study import SetUp, StudyUsage, studied_models
from pytest_cepbench.suites import ChainRun, ModelPool
from pytest_cepbench.suites.chain_run import require_chains

Status = Literal["not done", "pass", "remark", "problem"]
"""Of a check: there was nothing to check, or it could not be checked; nothing to say; something to
know; the gate cannot keep its promise as it is."""

_STATUSES: Sequence[Status] = ("not done", "pass", "remark", "problem")

Cell = str | float | int | None

_Finding = tuple[Status, str, str]
"""Status, a sentence, advice (empty where there is none)."""

STARTS = 24
"""About how many starts are damaged."""

NAMED = 5
"""Cases that a sentence names; the others are counted."""


@dataclass(frozen=True)
class Check:
    """One check.

    name: what was checked.
    status: the result.
    said: sentences, the first the shortest account.
    advice: what to do about it, a sentence each.
    head, rows: of a table of what was measured; None is not known.
    """

    name: str
    status: Status
    said: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()


def _check_of(
    name: str,
    findings: Sequence[_Finding],
    summary: str,
    head: tuple[str, ...] = (),
    rows: Sequence[tuple[Cell, ...]] = (),
) -> Check:
    """The check with these findings: the gravest status, every sentence, each piece of advice once.

    summary: the sentence of a check without findings, which passes.
    """
    statuses: list[Status] = ["pass", *(status for status, _, _ in findings)]
    status = max(statuses, key=_STATUSES.index)
    sentences = tuple(sentence for _, sentence, _ in findings) or (summary,)
    advice = tuple(dict.fromkeys(advice for _, _, advice in findings if advice))
    return Check(name, status, sentences, advice, head, tuple(rows))


@dataclass(frozen=True, kw_only=True)
class Diagnosis(SetUp):
    """The checks of one set-up.

    seeds: of the chains.
    model: spec of the model to be gated.
    checks: in the order of the page.
    """

    seeds: tuple[int, ...]
    model: str
    checks: tuple[Check, ...]


def examine(prepared: PreparedCalibration, model_pool: ModelPool, announce: Announce) -> Diagnosis:
    """Measure the suite under its seeds, and check it; nothing is gated.

    announce: is given a line for each part.
    Raises StoreError, which concerns all checks.
    """
    calibrations = calibrate(prepared, model_pool, announce)
    own = prepared.own
    run = require_chains(own.run(model_pool), "the doctor")
    checks = [measurability(calibrations), chance_floors(calibrations), visible_drops(calibrations)]
    # Those that call models or read chains: one that fails says so, and the others go on.
    asked: dict[str, Callable[[], Check]] = {"constant outputs": partial(constant_outputs, run)}
    for (encoder, start), tolerance in _compared(prepared, run).items():
        check = partial(encoder_sensitivity, run, model_pool, encoder, start, tolerance)
        asked[f"{encoder} on damaged {start}s"] = check
    for name, make in asked.items():
        announce(name)
        try:
            checks.append(make())
        except StoreError:
            raise
        except CepError as error:
            checks.append(Check(name, "problem", (f"could not be checked: {error}",)))
    return Diagnosis(
        suite=own.suite.name,
        version=own.suite.table.version,
        file=str(own.suite.file),
        data={name: str(value) for name, value in own.dataset.identity.items()},
        samples=len(own.dataset.samples),
        seeds=prepared.seeds,
        under_test=own.assignments.under_test,
        model=own.assignments.subject,
        players=tuple(studied_models(own.assignments, model_pool)),
        checks=tuple(checks),
        damage=tuple(model_pool.store.damage),
        effort=StudyUsage.of(runner.tally for runner in model_pool.runners.values()),
    )


# -- scores, which call no model -------------------------------------------------------------------


def measurability(calibrations: Sequence[Calibrated]) -> Check:
    """Check that every case was measured, and that its chains came to their end."""
    name = "measurement"
    measured = {c.key.within: c.measured for c in calibrations if c.measured is not None}
    broken = [c for c in calibrations if c.measured is None or c.broken]
    findings: list[_Finding] = []
    if broken:
        advice = "fix these cases first: the other checks look at what was measured"
        lines = [f"{case.key.within}: {case.reason}" for case in broken[:NAMED]]
        if len(broken) > NAMED:
            lines.append(f"and {len(broken) - NAMED} more cases")
        findings = [("problem", line, advice) for line in lines]
    else:
        stopped = {within: m.failures for within, m in measured.items() if m.failures}
        if stopped:
            most = max(stopped, key=lambda within: sum(stopped[within].values()))
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(stopped[most].items()))
            sentence = f"chains stopped ({most}: {kinds}): each counts as 0 from there on"
            findings.append(
                ("remark", sentence, "look at why chains stop before you accept scores")
            )
        warnings = dict.fromkeys(line for m in measured.values() for line in m.warnings)
        findings += [("remark", warning, "") for warning in warnings]
    summary = f"all {len(calibrations)} cases were measured, no chain stopped"
    return _check_of(name, findings if broken else findings[:NAMED], summary)


def chance_floors(calibrations: Sequence[Calibrated]) -> Check:
    """Check how far each similarity lies above chance, as a share of the way from there to 1.

    The limits are those of accepting a baseline. A score that can lose no more than the tolerance
    until it is chance is a problem as well.
    """
    name = "chance floor"
    rows: list[tuple[Cell, ...]] = []
    blind: list[str] = []
    poor: list[str] = []
    for case in calibrations:
        known = None if case.measured is None else range_of(case.measured)
        if known is None:
            continue
        rows.append((case.key.within, known.value, known.floor, round(known.share, DECIMALS)))
        if known.share < SMALLEST_SHARE or known.headroom <= case.policy.tolerance:
            blind.append(f"{case.key.within}: {known}")
        elif known.share < SMALL_SHARE:
            poor.append(f"{case.key.within}: {known}")
    if not rows:
        return Check(name, "not done", ("no case is a similarity that has a floor by chance",))
    look = (
        "scores at chance say nothing of the model, and no checkpoint can be seen to be worse: use "
        "a describer and a generator that know this kind of images, or an encoder that tells them "
        "apart, and look at a few chains first"
    )
    strengthen = (
        "scores near chance have little to lose: try a stronger generator or encoder, or fewer "
        "iterations"
    )
    findings: list[_Finding] = [
        *(("problem", f"at chance: {line}", look) for line in blind[::-1][:NAMED]),
        *(("remark", f"near chance: {line}", strengthen) for line in poor[::-1][:NAMED]),
    ]
    summary = f"every similarity lies at least {SMALL_SHARE:.0%} of the way from chance to 1"
    head = ("case", "value", "by chance", "share of the range")
    return _check_of(name, findings, summary, head, rows)


def visible_drops(calibrations: Sequence[Calibrated]) -> Check:
    """Check which drop fails in most runs, and whether good checkpoints are held, case by case.

    The noise is that between the measured seeds. A case of the whole suite that could not detect
    even a drop to the worst score is a problem.
    """
    name = "visible drop"
    judged = [c for c in calibrations if c.policy.statistical and c.measured is not None]
    if not judged:
        return Check(name, "not done", ("no case is judged by statistics",))
    blind, small, needed = [], [], 0
    for case in judged:
        power, measured = case.power, case.measured
        assert measured is not None
        if power is None or power.enough:
            continue
        small.append(case.key.within)
        needed = max(needed, power.needed or 0)
        most_to_lose = largest_drop(measured.value, record_of(measured), measured.floor)
        if most_to_lose is not None and power.visible > most_to_lose:
            blind.append(case.key)
    findings: list[_Finding] = []
    if blind:
        names = _listed([key.within for key in blind])
        sentence = f"could not detect even a drop to the worst score: {names}"
        whole = any(key.part == OVERALL for key in blind)
        findings.append(("problem" if whole else "remark", sentence, ""))
    if small:
        sentence = (
            f"a checkpoint as good as its baseline would often be undecided: {_listed(small)}"
        )
        number = f" (up to {needed} units)" if needed else ""
        advice = (
            f"give these cases more units{number}, by samples or [chain] seeds, a larger "
            "tolerance, or a larger share of alpha (fewer primary cases)"
        )
        findings.append(("remark", sentence, advice))
    silent = [case.key.within for case in judged if case.noise is not None and not case.noise.sd]
    if silent:
        sentence = f"not known, since the seeds change nothing: {_listed(silent)}"
        findings.append(("remark", sentence, ""))
    unknown = {case.key.within: case.reason for case in judged if case.noise is None}
    if unknown:
        sentence = f"not known: {_listed(list(unknown))} ({next(iter(unknown.values()))})"
        findings.append(("remark", sentence, ""))
    head = (*("case", "units", "sd", "alpha", "tolerance"), *("visible", "held of 100", "needed"))
    rows: list[tuple[Cell, ...]] = []
    for case in judged:
        power, noise = case.power, case.noise
        units, sd = (None, None) if noise is None else (noise.units, noise.sd)
        drop = power.visible if power is not None and isfinite(power.visible) else None
        alpha, tolerance = round(case.policy.alpha, 6), case.policy.tolerance
        held, more = (None, None) if power is None else (power.held_of_100, power.needed)
        rows.append((case.key.within, units, sd, alpha, tolerance, drop, held, more))
    summary = (
        "a checkpoint as good as its baseline is held in 80 of 100 runs or more, in every case"
    )
    return _check_of(name, findings, summary, head, rows)


def _listed(names: Sequence[str]) -> str:
    """Names of cases, the whole suite's first, which stand last."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[::-1][:NAMED]) + more


def constant_outputs(run: ChainRun) -> Check:
    """Check whether the first descriptions and drawings of different inputs are the same."""
    advice = (
        "look at what the model that repeats itself is given and answers: its prompt, its weights, "
        "its image size; nothing can be measured of a constant"
    )
    rows: list[tuple[Cell, ...]] = []
    findings: list[_Finding] = []
    for start, plan in run.suite.plans.items():
        chains = list(run.data.chains(start, run.dataset.samples).values())
        for generation in range(1, min(2, plan.generations) + 1):
            answers = [
                (chain.links[generation - 1].digest, chain.links[generation].digest)
                for chain in chains
                if chain.has(generation) and chain.links[generation - 1].recorded
            ]
            common = most_common(answers)
            if common is not None and common.of >= FEWEST_ANSWERS:
                what = "descriptions" if plan.describes(generation) else "drawings"
                different = len({answer for _, answer in answers})
                rows.append((f"{start}-first, {what}", common.of, different, common.count))
        findings += [
            ("problem", f"{start}-first chains: {sentence}", advice)
            for sentence in same_answers(plan, chains)
        ]
    if not rows:
        few = "too few different inputs were answered to tell"
        return Check("constant outputs", "not done", (few,))
    summary = f"no answer is given to more than {COMMON_SHARE:.0%} of different inputs"
    head = ("step", "inputs", "different outputs", "most alike")
    return _check_of("constant outputs", findings, summary, head, rows)


# -- encoders: whether they notice damage ----------------------------------------------------------


def blurred(image: ImageArtifact) -> ImageArtifact:
    """The image under a Gaussian blur whose deviation is a sixteenth of the shorter side."""
    radius = min(image.size) / 16
    return ImageArtifact.from_pil(image.to_pil().filter(ImageFilter.GaussianBlur(radius)))


def recolored(image: ImageArtifact) -> ImageArtifact:
    """The image with its channels exchanged in turn: red becomes green, green blue, blue red."""
    return ImageArtifact(image.pixels[:, :, [2, 0, 1]])


def word_dropped(text: str) -> str:
    """The text without its longest word, the first of equals; as it is where it has one alone."""
    words = list(re.finditer(r"\w[\w'-]*", text))
    if len(words) < 2:
        return text
    longest = max(words, key=lambda word: len(word[0]))
    return " ".join((text[: longest.start()] + text[longest.end() :]).split())


def half_silent(sound: Sound) -> Sound:
    """The second half of a sound taken out."""
    samples = sound.samples.copy()
    samples[(len(samples) + 1) // 2 :] = 0
    return Sound(samples, sound.rate)


DAMAGE: Mapping[Modality, Mapping[str, Callable[[Any], Any]]] = {
    "image": {"strong blur": blurred, "colors exchanged": recolored},
    "text": {"word dropped": word_dropped},
    "sound": {"second half silent": half_silent},
}
"""What is done to starts, by its name; pure functions."""


def _compared(prepared: PreparedCalibration, run: ChainRun) -> dict[tuple[str, Modality], float]:
    """Encoder, and the starts that it compares with: the smallest tolerance of their cases."""
    tolerances: dict[tuple[str, Modality], float] = {}
    for case in prepared.own.cases:
        measure = run.measures[case.key.metric]
        if not isinstance(measure, SimilarityMeasure):
            continue
        own = prepared.policies[case.key].tolerance
        for required in measure.required_features(case):
            if required.reader is not None:
                pair = (required.reader, required.plan.start)
                tolerances[pair] = min(own, tolerances.get(pair, own))
    return tolerances


def encoder_sensitivity(
    run: ChainRun, model_pool: ModelPool, encoder: str, start: Modality, tolerance: float
) -> Check:
    """Check how far known damage of the starts moves their similarity, beside the tolerance.

    Damage that leaves a start as it is, as exchanging the colors of a grey image does, is not
    counted for it. Raises what encoding raises.
    """
    runner = model_pool.runner(run.assignments.roles[encoder])

    def encoded(artifacts: Mapping[str, Any]) -> dict[str, Any]:
        """The vector of each artifact, of unit length; None for one that cannot be read."""
        steps = [
            Step(runner.key("", 0, start, digest), 0, partial(MODALITIES[start].given, artifact))
            for digest, artifact in artifacts.items()
        ]
        vectors = [
            None if isinstance(result, Failure) else np.asarray(result, dtype=np.float64)
            for result in runner.ask(f"encode_{start}s", steps)
        ]
        unit = [None if vector is None else vector / np.linalg.norm(vector) for vector in vectors]
        return dict(zip(artifacts, unit, strict=True))

    originals = dict(_starts(run, start))
    vectors = encoded(originals)
    rows: list[tuple[Cell, ...]] = []
    findings: list[_Finding] = []
    for name, damage in DAMAGE[start].items():
        damaged = {digest: damage(artifact) for digest, artifact in originals.items()}
        named = {d: digest_text(a) if isinstance(a, str) else a.digest for d, a in damaged.items()}
        changed = {digest: own for digest, own in named.items() if own != digest}
        others = encoded({own: damaged[digest] for digest, own in changed.items()})
        moved = [
            max(0.0, 1.0 - float(vectors[digest] @ others[own]))
            for digest, own in changed.items()
            if vectors[digest] is not None and others[own] is not None
        ]
        drop = fsum(moved) / len(moved) if moved else None
        rows.append((name, len(moved), drop))
        if drop is not None and drop < tolerance:
            advice = (
                f"use another {encoder}, or a smaller tolerance: a checkpoint that makes such a "
                f"mistake in every {start} would be held"
            )
            less = f"{name}: moves the score by {drop:.4f}, less than the tolerance {tolerance:g}"
            findings.append(("problem", less, advice))
    title = f"{encoder} on damaged {start}s"
    if not any(count for _, count, _ in rows):
        return Check(title, "not done", (f"no {start} could be damaged and encoded",))
    summary = f"all damage moves the score by {tolerance:g} or more"
    return _check_of(title, findings, summary, ("damage", "starts", "moves the score by"), rows)


def _starts(run: ChainRun, start: Modality) -> Iterator[tuple[str, Any]]:
    """Digest and start, of about `STARTS` samples, the same in every run, of all categories."""
    depth = max(1, ceil(STARTS / len(run.dataset.categories)))
    for sample in run.dataset.limited(depth).samples:
        if sample.replicate:  # further seeds of a sample start where it does
            continue
        if start == "text" and sample.text is not None:
            yield digest_text(sample.text), sample.text
        elif start != "text" and sample.seed(start) is not None:
            artifact = load_seed(sample, start)
            yield artifact.digest, artifact
