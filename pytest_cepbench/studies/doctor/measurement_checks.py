"""Checks of what was measured, which call no model: scores, samples, outputs and their cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path

import numpy as np

from pytest_cepbench.gate.baseline import baseline_path, record_of, usable_baseline
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.sensitivity import largest_drop, range_of
from pytest_cepbench.gate.statistics.constants import SMALL_SHARE, SMALLEST_SHARE
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.measures.chain_similarity import same_answers
from pytest_cepbench.metrics.constancy import COMMON_SHARE, FEWEST_ANSWERS, most_common
from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.studies.calibration import Calibrated
from pytest_cepbench.studies.doctor.diagnosis import (
    NAMED,
    Cell,
    Check,
    CheckTable,
    EncoderComparison,
    Finding,
    MeasuredSuite,
    Vector,
    check_of,
)

CONSTANT_OUTPUTS, DUPLICATES, COST = (
    "constant outputs",
    "duplicates among the samples",
    "cost of a run",
)
"""Names of checks."""

NEAR = 0.999
"""Cosine from which two different starts count as near-equal."""

MANY = 0.1
"""Share of samples that are copies from which it is a problem: statistics count each."""

_BLOCK = 512  # starts compared at once with all others


# -- scores ----------------------------------------------------------------------------------------


def measurability(calibrations: Sequence[Calibrated]) -> Check:
    """Check that every case was measured, and that its chains came to their end."""
    name = "measurement"
    measured = {c.key.within: c.measured for c in calibrations if c.measured is not None}
    broken = [c for c in calibrations if c.measured is None or c.broken]
    findings: list[Finding] = []
    if broken:
        advice = "mend what is said of the cases first: the other checks look at what was measured"
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
    return check_of(name, findings if broken else findings[:NAMED], summary)


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
    findings: list[Finding] = [
        *(("problem", f"at chance: {line}", look) for line in _last_first(blind)),
        *(("remark", f"near chance: {line}", strengthen) for line in _last_first(poor)),
    ]
    summary = f"every similarity lies at least {SMALL_SHARE:.0%} of the way from chance to 1"
    head = ("case", "value", "by chance", "share of the range")
    return check_of(name, findings, summary, CheckTable(head, tuple(rows)))


def _last_first(lines: Sequence[str]) -> list[str]:
    """Lines on cases, the last ones first: the whole suite is among them."""
    more = [f"{len(lines) - NAMED} more cases"] if len(lines) > NAMED else []
    return [*lines[::-1][:NAMED], *more]


def visible_drops(calibrations: Sequence[Calibrated], baselines: Path) -> Check:
    """Check which drop fails in most runs, and whether good checkpoints are held, case by case.

    The noise is that between the measured seeds; where they change nothing, the one that the
    accepted baseline holds. A case of the whole suite that could not even show a fall to the worst
    there is, is a problem.
    """
    name = "visible drop"
    judged = [
        _with_known_noise(case, baselines)
        for case in calibrations
        if case.policy.statistical and case.measured is not None
    ]
    if not judged:
        return Check(name, "not done", ("no case is judged by statistics",))
    blind, small, needed = [], [], 0
    for case, _ in judged:
        power, measured = case.power, case.measured
        assert measured is not None
        if power is None or power.enough:
            continue
        small.append(case.key.within)
        needed = max(needed, power.needed or 0)
        most_to_lose = largest_drop(measured.value, record_of(measured), measured.floor)
        if most_to_lose is not None and power.visible > most_to_lose:
            blind.append(case.key)
    findings: list[Finding] = []
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
    silent = [case.key.within for case, _ in judged if case.noise is not None and not case.noise.sd]
    if silent:
        sentence = (
            "not known, since the seeds change nothing and no baseline was calibrated: "
            f"{_listed(silent)}"
        )
        findings.append(("remark", sentence, ""))
    unknown = {case.key.within: case.reason for case, _ in judged if case.noise is None}
    if unknown:
        sentence = f"not known: {_listed(list(unknown))} ({next(iter(unknown.values()))})"
        findings.append(("remark", sentence, ""))
    head = (
        *("case", "units", "sd", "noise of", "alpha", "tolerance"),
        *("visible", "held of 100", "needed"),
    )
    rows: list[tuple[Cell, ...]] = []
    for case, source in judged:
        power, noise = case.power, case.noise
        units, sd = (None, None) if noise is None else (noise.units, noise.sd)
        drop = power.visible if power is not None and isfinite(power.visible) else None
        alpha, tolerance = round(case.policy.alpha, 6), case.policy.tolerance
        held, more = (None, None) if power is None else (power.held_of_100, power.needed)
        rows.append((case.key.within, units, sd, source, alpha, tolerance, drop, held, more))
    summary = (
        "a checkpoint as good as its baseline is held in 80 of 100 runs or more, in every case"
    )
    return check_of(name, findings, summary, CheckTable(head, tuple(rows)))


def _with_known_noise(case: Calibrated, baselines: Path) -> tuple[Calibrated, str]:
    """The case with the noise that is known of it, and the source of that noise."""
    if case.noise is None or case.noise.sd == 0:
        assert case.measured is not None
        kept = usable_baseline(baseline_path(baselines, case.key), case.key)
        same = kept is not None and kept.identity == record_of(case.measured).identity
        if same and kept is not None and kept.noise is not None and kept.noise.sd > 0:
            return replace(case, noise=kept.noise), "baseline"
    return case, "-" if case.noise is None else "seeds"


def _listed(names: Sequence[str]) -> str:
    """Names of cases, the whole suite's first, which stand last."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[::-1][:NAMED]) + more


# -- samples and outputs ---------------------------------------------------------------------------


def duplicates(suite: MeasuredSuite) -> Check:
    """Check whether samples of different units start from equal or near-equal artifacts."""
    samples = suite.dataset.samples
    findings: list[Finding] = []
    for start in suite.run.suite.plans:
        digests = suite.run.chain_data.starts(start, samples)
        units: dict[str, dict[str, str]] = defaultdict(dict)
        for sample in samples:
            units[digests[sample.id]].setdefault(sample.unit, sample.id)
        equal = [list(ids.values()) for ids in units.values() if len(ids) > 1]
        if equal:
            copies = sum(len(ids) - 1 for ids in equal)
            sentence = (
                f"{copies} of {len(samples)} samples have the {start} of another one: "
                f"{_groups(equal)}"
            )
            advice = (
                f"drop the copies: each counts as evidence of its own, which {copies} of them are "
                "not"
            )
            many = copies >= MANY * len(samples)
            findings.append(("problem" if many else "remark", sentence, advice))
    comparisons = suite.comparisons()
    for comparison in comparisons:
        near = _near_equal(suite, comparison)
        if near:
            sentence = (
                f"pairs of {comparison.kind}s that differ and are near-equal to the "
                f"{comparison.encoder} (cosine of {NEAR:g} or more): {len(near)}, {_groups(near)}"
            )
            advice = (
                "look at the near-equal pairs: where they show the same, drop one; where they do "
                "not, use an encoder that tells them apart"
            )
            findings.append(("remark", sentence, advice))
    none_near = f", none with a cosine of {NEAR:g} or more" if comparisons else ""
    summary = f"no two of {len(samples)} samples start from the same{none_near}"
    return check_of(DUPLICATES, findings, summary)


def _near_equal(suite: MeasuredSuite, comparison: EncoderComparison) -> list[tuple[str, str]]:
    """Pairs of ids whose starts differ and have nearly the same direction."""
    vectors: dict[str, tuple[str, Vector]] = {}
    for shard in suite.run.chain_data.features(
        comparison.plan.start, comparison.encoder, 0, suite.dataset.samples
    ):
        for chain, vector in shard:
            digest = chain.links[0].digest
            if isinstance(vector, np.ndarray) and digest not in vectors:
                vectors[digest] = (chain.sample.id, vector.astype(np.float64))
    if len(vectors) < 2:
        return []
    ids = [sample_id for sample_id, _ in vectors.values()]
    matrix = np.stack([vector / np.linalg.norm(vector) for _, vector in vectors.values()])
    return [
        (ids[other], ids[low + row])
        for low in range(0, len(matrix), _BLOCK)
        for row, other in np.argwhere(matrix[low : low + _BLOCK] @ matrix.T >= NEAR).tolist()
        if other < low + row
    ]


def _groups(groups: Sequence[Sequence[str]]) -> str:
    more = f" and {len(groups) - NAMED} more" if len(groups) > NAMED else ""
    return "; ".join(" = ".join(group) for group in groups[:NAMED]) + more


def constant_outputs(suite: MeasuredSuite) -> Check:
    """Check whether the first descriptions and drawings of different inputs are the same."""
    advice = (
        "look at what the model that repeats itself is given and answers: its prompt, its weights, "
        "its image size; nothing can be measured of a constant"
    )
    rows: list[tuple[Cell, ...]] = []
    findings: list[Finding] = []
    for start, plan in suite.run.suite.plans.items():
        chains = list(suite.run.chain_data.chains(start, suite.dataset.samples).values())
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
    table = CheckTable(("step", "inputs", "different outputs", "most alike"), tuple(rows))
    if not rows:
        few = "too few different inputs were answered to tell"
        return Check(CONSTANT_OUTPUTS, "not done", (few,), (), (table,))
    summary = f"no answer is given to more than {COMMON_SHARE:.0%} of different inputs"
    return check_of(CONSTANT_OUTPUTS, findings, summary, table)


# -- the cost of a run -----------------------------------------------------------------------------


def cost_of_a_run(suite: MeasuredSuite) -> Check:
    """Inputs, seconds and, if a server counts them, tokens and cost of a run on an empty store."""
    needs = suite.run.forecast((case, None) for case in suite.cases).needs
    runners = {id(runner.bound): runner for runner in suite.model_pool.runners.values()}
    rows: list[tuple[Cell, ...]] = []
    seconds: list[float] = []
    usages: list[Usage] = []
    for need in needs:
        runner = runners.get(id(need.bound))
        inputs = need.stored + need.inputs
        tally = None if runner is None or not runner.tally.inputs else runner.tally
        # The pace of earlier calls on this kind of device, else that of this run.
        pace = None if tally is None else tally.seconds / tally.inputs
        pace = pace if need.throughput is None else need.throughput.seconds
        seconds += [] if pace is None else [pace * inputs]
        usage = Usage()
        if tally is not None and tally.usage.requests:  # of a server, at the rate of this run
            share = inputs / tally.inputs
            usage = Usage(
                requests=round(tally.usage.requests * share),
                input_tokens=round(tally.usage.input_tokens * share),
                output_tokens=round(tally.usage.output_tokens * share),
                images=round(tally.usage.images * share),
                cost=tally.usage.cost * share,
            )
        usages.append(usage)
        rows.append(
            (need.bound.role, need.bound.spec, inputs, None if pace is None else pace * inputs)
        )
    about = "about" if len(seconds) == len(rows) else "at least"
    inputs = sum(need.stored + need.inputs for need in needs)
    sentence = (
        f"a run of {len(suite.cases)} cases on an empty store: {inputs} model inputs, {about} "
        f"{sum(seconds):.1f} s in models, loading not counted"
    )
    lines = [sentence]
    if len(seconds) < len(rows):
        lines.append("time is not known of models whose results all came from the store")
    head: tuple[str, ...] = ("role", "model", "inputs", "seconds")
    usage = sum(usages, Usage())
    if usage.requests:
        lines.append(
            f"servers count about {usage.input_tokens} tokens in, {usage.output_tokens} out, "
            f"cost {usage.cost:.4g}"
        )
        head += ("tokens in", "tokens out", "cost")
        counted = [
            (own.input_tokens, own.output_tokens, own.cost) if own.requests else (None, None, None)
            for own in usages
        ]
        rows = [(*row, *numbers) for row, numbers in zip(rows, counted, strict=True)]
    return Check(COST, "pass", tuple(lines), (), (CheckTable(head, tuple(rows)),))
