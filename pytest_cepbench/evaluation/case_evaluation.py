"""Measurement of a case as far as its verdict needs, and the judgement of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import cast

from pytest_cepbench.errors import BaselineError, CheckpointError, UnscoredError
from pytest_cepbench.evaluation.evaluator import AssignedCase, Evaluator
from pytest_cepbench.gate import Judgement, Measurement, Policy, Verdict, judge
from pytest_cepbench.gate.baseline import anchor_path, baseline_path, read_baseline
from pytest_cepbench.gate.compare import Loser, losers_of
from pytest_cepbench.gate.measurement import Scores, rounded
from pytest_cepbench.gate.policy import Pairing
from pytest_cepbench.gate.series import Entry, Place
from pytest_cepbench.gate.statistics import look_shares, look_sizes
from pytest_cepbench.gate.statistics.constants import MOST_UNSCORED
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.shards import WorkQueue
from pytest_cepbench.suites.suite_run import CaseMeasurement


@dataclass(frozen=True)
class EvaluatedCase:
    """A case, measured and judged.

    policy: how it is judged, with its own share of alpha.
    baseline, anchor: what it was compared with; None where there is none.
    pairing: the samples by which they were compared.
    looks: samples at each look.
    partial: whether there are more samples.
    share: of alpha, at the last look.
    place: in the series of the run; None where it has none.
    """

    case: Case
    policy: Policy
    measurement: CaseMeasurement
    judgement: Judgement
    baseline: Measurement | None
    anchor: Measurement | None
    pairing: Pairing
    looks: tuple[int, ...]
    partial: bool
    share: float
    place: Place | None = None

    @property
    def lost_since_anchor(self) -> bool:
        """True where the samples that got worse are those that did so since the anchor."""
        return self.judgement.reference == "anchor"

    @property
    def reference(self) -> Measurement | None:
        """What the samples that got worse are compared with: the baseline, or the anchor."""
        return self.anchor if self.lost_since_anchor else self.baseline

    @property
    def paired_scores(self) -> Scores:
        """The scores that are compared with the reference's; of battles those against it."""
        measurement = self.measurement
        battled = self.lost_since_anchor and measurement.answers
        return measurement.anchor_scores if battled else measurement.scores

    @property
    def differences(self) -> dict[str, float]:
        """Sample id -> its paired difference to the reference, turned so that positive is better.

        Empty where nothing was compared, and where a score is that of a whole set.
        """
        measurement, reference = self.measurement, self.reference
        compared = self.judgement.difference is not None and not measurement.sizes
        if reference is None or not compared:
            return {}
        sign = 1.0 if measurement.higher_is_better else -1.0
        return {
            sample: rounded(sign * (score - reference.scores[category][sample]))
            for category, part in self.paired_scores.items()
            for sample, score in part.items()
            if sample in reference.scores.get(category, {})
        }

    @property
    def losers(self) -> tuple[Loser, ...]:
        """The samples that got worse since the reference, most first; empty if not compared."""
        judgement, reference = self.judgement, self.reference
        incomparable = judgement.verdict is Verdict.INCOMPARABLE
        if reference is None or judgement.difference is None or incomparable:
            return ()
        return losers_of(self.paired_scores, reference)

    def judge_at(self, alpha: float) -> Judgement:
        """The measurement judged at another alpha, of which the last look has its share."""
        return judge(
            self.measurement,
            self.baseline,
            replace(self.policy, alpha=min(0.5, alpha * self.share)),
            anchor=self.anchor,
            pairing=self.pairing,
            partial=self.partial,
        )


def read_references(
    evaluator: Evaluator, case: Case
) -> tuple[Measurement | None, Measurement | None]:
    """Baseline and anchor of a case. Raises BaselineError for a file that cannot be used."""
    root = evaluator.settings.baselines
    return (
        read_baseline(baseline_path(root, case.key), case.key),
        read_baseline(anchor_path(root, case.key), case.key),
    )


def evaluate_case(
    evaluator: Evaluator,
    own: AssignedCase,
    *,
    accepting: bool = False,
) -> EvaluatedCase:
    """Measure and judge a case, which is entered in the series of the run first.

    accepting: whether the measurement is to become the baseline: it is measured whole then, and
    files that are about to be replaced need not be readable.
    Raises what reading baselines, measuring and the record of the series raise;
    CheckpointError where the model under test is its base: nothing would be gated.
    """
    case, policy, place = own.case, own.policy, None
    baseline = anchor = None
    try:
        baseline, anchor = read_references(evaluator, case)
    except BaselineError:
        if not accepting:
            raise
    check_policy = evaluator.suites.check_policy
    if not accepting:
        check_policy(own.suite_file, case.key, policy, baseline, anchor)
    run, file = evaluator.suite_run(own.suite_file), evaluator.series
    # A case that cannot fail the run, or is judged without statistics, has no part in a series.
    if file is not None and policy.primary and policy.statistical:
        record = run.model_record()
        first, model = (
            None if accepted is None else accepted.model.get("identity")
            for accepted in (anchor, baseline)
        )
        place = file.enter(
            Entry(
                look=0,
                run=evaluator.context.run_id,
                case=str(case.key),
                model=record["identity"],
                spec=record.get("spec", ""),
                alpha=policy.alpha,
                reference=model or "",
            ),
            first,
        )
        policy = replace(policy, alpha=place.alpha, series=place.shares)
    # As the first baseline of a training an idle model is right, and accepted with a warning.
    gated = () if accepting or run.assignments.replay is not None else run.assignments.gated
    found = [run.runner(role).bound.idle() for role in gated]
    if found and all(idle.whole for idle in found):
        raise CheckpointError(
            f"nothing is gated: {'; '.join(dict.fromkeys(r for i in found for r in i.remarks))}"
            ". Give a checkpoint from after its training began; --snapshot-update accepts this "
            "one as the first baseline"
        )
    evaluated = _look(evaluator, replace(own, policy=policy), baseline, anchor, accepting=accepting)
    if accepting:
        check_policy(own.suite_file, case.key, policy, evaluated.measurement)
    return replace(evaluated, place=place)


def _look(
    evaluator: Evaluator,
    own: AssignedCase,
    baseline: Measurement | None,
    anchor: Measurement | None,
    *,
    accepting: bool,
) -> EvaluatedCase:
    """Measure a case and judge it, looking at more samples while it is undecided."""
    case, policy, settings = own.case, own.policy, evaluator.settings
    run, shards = evaluator.suite_run(own.suite_file), prepared_shards(evaluator)
    pairing = cast("Pairing", settings.pairing)
    sizes = [run.samples(case)] if accepting else planned_looks(evaluator, own)
    looks: list[int] = []
    evaluated: EvaluatedCase | None = None
    unscored: UnscoredError | None = None
    for number, (size, share) in enumerate(zip(sizes, look_shares(len(sizes)), strict=True)):
        seconds = settings.budget.seconds
        if number and seconds is not None and time.time() - evaluator.context.started > seconds:
            break
        depth = run.depth(case, size)
        evaluator.offer(own.suite_file, case, depth)
        shards.compute(own.suite_file, case, depth)
        try:
            measurement = run.measure(case, depth)
        except UnscoredError as error:
            # One of the few samples of an early look is a large share, of all maybe a small one.
            if error.samples > MOST_UNSCORED * run.samples(case):
                raise
            unscored = error
            continue
        unscored, partial = None, depth is not None
        looks.append(measurement.n)
        judgement = judge(
            measurement,
            baseline,
            replace(policy, alpha=policy.alpha * share),
            anchor=anchor,
            pairing=pairing,
            partial=partial,
        )
        evaluated = EvaluatedCase(
            case, policy, measurement, judgement, baseline, anchor, pairing, tuple(looks), partial,
            share,
        )  # fmt: skip
        if judgement.verdict is not Verdict.INCONCLUSIVE:
            break
    if unscored is not None:
        raise unscored
    assert evaluated is not None  # the first look is always taken
    return evaluated


def prepared_shards(evaluator: Evaluator) -> WorkQueue:
    """The shards of the run, with those of every collected case."""
    shards = evaluator.shards
    if not shards.cases:
        for own in evaluator.assigned.values():
            first = planned_looks(evaluator, own)[0]
            depth = evaluator.suite_run(own.suite_file).depth(own.case, first)
            shards.add(own.suite_file, own.case, depth)
            evaluator.offer(own.suite_file, own.case, depth)
    return shards


def planned_looks(evaluator: Evaluator, own: AssignedCase) -> list[int]:
    """Samples at each look that a case may take; categories add to them alike.

    More than one look is for what is decided by statistics and can fail the run. What can fail it
    otherwise is measured whole: by a few samples a threshold would be decided by chance. So is what
    has a score of a whole set.
    """
    run, policy = evaluator.suite_run(own.suite_file), own.policy
    every, budget = run.samples(own.case), evaluator.settings.budget.samples
    if evaluator.settings.inconclusive != "more" or not run.per_sample(own.case):
        return [every]
    most = every if budget is None else min(every, budget)
    if not policy.primary:
        return [look_sizes(most)[0]]
    return list(look_sizes(most)) if policy.statistical else [most]
