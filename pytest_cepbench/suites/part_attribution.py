"""Which part of a pipeline lost a case's score: the baseline's parts are put back one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answering import AnswerModels
from pytest_cepbench.chains.steps import recall, remember
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import BaselineError, MeasurementError, NotInStoreError
from pytest_cepbench.gate.measurement import mean_of_scores
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.suites.answer_data import AnswerData
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.attribution import tidy
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.answer_base import AnswerMeasure, CaseOpponents
from pytest_cepbench.suites.roles import ANSWERING


@dataclass(frozen=True)
class PartAttribution:
    """The parts of a pipeline by which a case lost its score.

    said: in words; empty where one model makes the answers alone.
    costs: role -> what was lost by it, in the metric's own unit, above 0 for a loss; they add up to
        the drop. Empty where nothing was measured.
    """

    said: str
    costs: Mapping[str, float] = field(default_factory=dict)


def attribute_parts(
    run: AnswerRun, case: Case, step: str, sample_ids: Sequence[str]
) -> PartAttribution:
    """Say which of writer, generator and editor lost a case's score.

    Where several differ from the baseline's, they are put back in this order: each costs what the
    answers score better with it. The baseline's results come from the store, its models are never
    loaded; the candidate's are computed where they are not stored. A judge is not asked again, so
    win rates and its scores are not divided.

    step: the baseline's models under test, by `remember`; empty where it has none.
    sample_ids: of the case, each counted once, in however many categories it is.
    Raises DatasetError, CheckpointError, ModelError and StoreError as they come. What cannot be
    found out is said, not raised.
    """
    roles = [role for role in ANSWERING if role in run.assignments.roles]
    if not step or "interleaver" in roles:
        return PartAttribution("")
    try:
        recorded = {bound.role: bound for bound in recall(step)}
        differing: dict[str, BoundRole] = {
            role: recorded[role]
            for role in roles
            if role in recorded and remember(recorded[role]) != remember(run.runner(role).bound)
        }
        own = [role for role in roles if role not in differing]
        if not differing:
            return PartAttribution(f"All parts that answer are the baseline's own: {_list(own)}.")
        if len(differing) == 1:
            rest = f"; {_list(own)} {'is' if len(own) == 1 else 'are'} the baseline's own"
            return PartAttribution(f"Lost by {_list(differing)}{rest if own else ''}.")
        measure = run.measures[case.key.metric]
        if measure.judged or measure.scored:
            return PartAttribution(_untold(list(differing), measure))
        samples = [s for name in sorted(set(sample_ids)) for s in run.data.named(name)]
        return _divide(run, case, differing, samples)
    except (BaselineError, MeasurementError, NotInStoreError) as error:
        return PartAttribution(f"Which part lost cannot be said: {error}.")


def _list(roles: Iterable[str]) -> str:
    return " and ".join(f"the {role}" for role in roles)


def _untold(differing: Sequence[str], measure: AnswerMeasure) -> str:
    where, replies = ("in battles", "verdicts") if measure.judged else ("in scores", "scores")
    options = ", then with its ".join(f"{role} (--{role}=SPEC)" for role in differing)
    return (
        f"Not the baseline's own: {_list(differing)}. What each of them costs {where} takes new "
        f"{replies} of the judge: run again with the baseline's {options}."
    )


def _divide(
    run: AnswerRun, case: Case, differing: Mapping[str, BoundRole], samples: Sequence[Sample]
) -> PartAttribution:
    """What each of several parts costs."""
    models = run.data.models
    hybrids = [models]
    for role, bound in differing.items():
        baseline_part: dict[str, Any] = {role: RoleRunner(bound, models.store)}
        hybrids.append(replace(hybrids[-1], **baseline_part))
    known = _in_store(run, hybrids[-1], samples)
    if not known:
        return PartAttribution(
            "The baseline's answers are not in this run's store, so which part lost cannot be "
            "said: use the store of the run that measured the baseline (--cep-store), or measure "
            "its models once with this one."
        )
    sign = 1.0 if run.measures[case.key.metric].higher_is_better else -1.0
    values = [sign * _value(run, case, run.data.recast(known, hybrid)) for hybrid in hybrids]
    costs = {
        role: tidy(after - before)
        for role, before, after in zip(differing, values, values[1:], strict=False)
    }
    said, left_out = _describe(costs, len(known)), len(samples) - len(known)
    if left_out:
        said += f" Left out: {left_out} whose answers by the baseline are not in the store."
    return PartAttribution(said, costs)


def _in_store(run: AnswerRun, models: AnswerModels, samples: Sequence[Sample]) -> list[Sample]:
    """The samples whose answers by the baseline's models are in the store."""
    try:
        run.data.recast(samples, models).answers(samples)
    except NotInStoreError:
        if len(samples) == 1:
            return []
        return [sample for sample in samples if _in_store(run, models, [sample])]
    return list(samples)


def _value(run: AnswerRun, case: Case, data: AnswerData) -> float:
    """The mean score of a case's samples, as other models answer."""
    present = tuple(c for c in case.categories if data.dataset.in_category(c))
    measure = run.measures[case.key.metric]
    measured = measure.measure(replace(case, categories=present), data, CaseOpponents())
    scores = {s: score for part in measured.scores.values() for s, score in part.items()}
    return mean_of_scores({"": scores})


def _describe(costs: Mapping[str, float], samples: int) -> str:
    over = f"over {samples} sample{'s' if samples > 1 else ''}"
    drop = sum(costs.values())
    if drop <= 0:
        return f"Nothing was lost {over}."
    parts = ", ".join(
        f"{cost:.4f} ({cost / drop:.0%}) by the {role}"
        for role, cost in sorted(costs.items(), key=lambda part: -part[1])
    )
    return f"Lost {drop:.4f} {over}: {parts}."
