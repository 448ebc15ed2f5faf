"""Measuring a case as far as its verdict needs, and judging what was measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pytest_cepbench.gate import Baseline, Judgement, Measurement, Policy, Verdict, judge
from pytest_cepbench.gate.baseline import anchor_path, baseline_path, read_baseline
from pytest_cepbench.gate.policy import Pairing
from pytest_cepbench.gate.statistics import look_shares, look_sizes
from pytest_cepbench.plugin.evaluator import Evaluator
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.shards import Work


@dataclass(frozen=True)
class References:
    """What a case is compared with: the last accepted baseline, and the anchor behind it.

    pairing: by which samples.
    """

    baseline: Baseline | None
    anchor: Baseline | None
    pairing: Pairing = "exact"

    def judge(self, measurement: Measurement, policy: Policy, *, partial: bool) -> Judgement:
        """A measurement against both; partial: as in `judge`."""
        return judge(
            measurement,
            self.baseline,
            policy,
            anchor=self.anchor,
            pairing=self.pairing,
            partial=partial,
        )


@dataclass(frozen=True)
class EvaluatedCase:
    """A case, measured and judged.

    looks: samples at each look. partial: whether there are more. share: of alpha at the last look.
    references: what it was compared with.
    """

    measurement: Measurement
    judgement: Judgement
    looks: tuple[int, ...]
    partial: bool
    share: float
    references: References

    def judge(self, policy: Policy) -> Judgement:
        """What was measured, judged by another policy; alpha is that of the last look."""
        return self.references.judge(self.measurement, policy, partial=self.partial)


def read_references(process: Evaluator, case: Case) -> References:
    """Baseline and anchor of a case. Raises BaselineError for a file that cannot be used."""
    root = process.settings.baselines
    return References(
        read_baseline(baseline_path(root, case.key), case.key),
        read_baseline(anchor_path(root, case.key), case.key),
        cast("Pairing", process.settings.pairing),
    )


def examine(
    process: Evaluator,
    suite_file: Path,
    case: Case,
    policy: Policy,
    references: References,
    *,
    whole: bool,
) -> EvaluatedCase:
    """Measure a case and judge it, looking at more samples while nothing is decided.

    whole: measure all samples at once, whatever the settings. Raises what measuring raises.
    """
    run = process.run(suite_file)
    sizes = [run.samples(case)] if whole else planned_looks(process, suite_file, case, policy)
    shares = look_shares(len(sizes))
    looks: list[int] = []
    found: EvaluatedCase | None = None
    for size, share in _affordable(process, sizes, shares):
        depth = run.depth(case, size)
        partial = depth is not None
        work = work_of(process)
        process.offer(suite_file, case, depth)
        work.ready(suite_file, case, depth)
        measurement = run.measure(case, depth)
        looks.append(measurement.n)
        level = replace(policy, alpha=policy.alpha * share)
        judgement = references.judge(measurement, level, partial=partial)
        found = EvaluatedCase(measurement, judgement, tuple(looks), partial, share, references)
        if judgement.verdict is not Verdict.INCONCLUSIVE:
            break
    assert found is not None  # the first look is always taken
    return found


def work_of(process: Evaluator) -> Work:
    """The shards of the run, those of every case that was collected among them."""
    work = process.work
    if not work.enlisted:
        for one in process.assigned.values():
            run = process.run(one.suite_file)
            first = planned_looks(process, one.suite_file, one.case, one.policy)[0]
            needed = (one.suite_file, one.case, run.depth(one.case, first))
            work.enlist(*needed)
            process.offer(*needed)
    return work


def planned_looks(process: Evaluator, suite_file: Path, case: Case, policy: Policy) -> list[int]:
    """Samples at each look that a case may take; categories add to them alike.

    More than one look is for what is decided by statistics and can fail the run; what has a score
    of a whole set is measured whole.
    """
    run = process.run(suite_file)
    every = run.samples(case)
    if process.settings.inconclusive != "more" or not run.per_sample(case):
        return [every]
    budget = process.settings.budget.samples
    sizes = look_sizes(every if budget is None else min(every, budget))
    return list(sizes) if policy.primary and policy.statistical else list(sizes[:1])


def _affordable(
    process: Evaluator, sizes: list[int], shares: tuple[float, ...]
) -> Iterator[tuple[int, float]]:
    """The looks, as long as the time of the run lasts."""
    seconds = process.settings.budget.seconds
    for number, look in enumerate(zip(sizes, shares, strict=True)):
        if number and seconds is not None and time.time() - process.started > seconds:
            return
        yield look
