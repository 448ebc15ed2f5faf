"""The verdict of several encoders on one part of a suite, and what each of them says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as replace_fields

from pytest_cepbench.errors import CepError, MeasurementError
from pytest_cepbench.evaluation.case_evaluation import (
    EvaluatedCase,
    evaluate_case,
    read_references,
)
from pytest_cepbench.evaluation.case_series import SeriesCase, enter_series
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.gate import CaseKey, Judgement, Measurement, Policy, Verdict
from pytest_cepbench.gate.agreement import agreed_verdict, upper_share
from pytest_cepbench.gate.series import (
    EncoderScores,
    Place,
    SeriesFile,
    partings,
    read_scores,
    write_scores,
)
from pytest_cepbench.gate.series.encoder_paths import comparable_digest
from pytest_cepbench.report import CaseResult, EncoderVote
from pytest_cepbench.suites.cases import AgreedCase, Case
from pytest_cepbench.suites.gate_config import Overrides

METHOD = "partial conjunction; intersection-union"
"""Of the verdict: of regressed, and of held."""


@dataclass(frozen=True)
class EvaluatedAgreement:
    """A case that several encoders decide, evaluated.

    policy: of the case, with its own alpha.
    members: encoder -> its case, measured and judged at the levels of `gate.agreement`.
    places: encoder -> its place in the series of the run; empty without one.
    """

    case: AgreedCase
    policy: Policy
    members: Mapping[str, EvaluatedCase]
    places: Mapping[str, Place]

    @property
    def judgement(self) -> Judgement:
        """What they say together; it has no number of its own."""
        return self._judgement({name: m.judgement for name, m in self.members.items()})

    @property
    def measurement(self) -> Measurement:
        """That of the first encoder."""
        return next(iter(self.members.values())).measurement

    def judge_at(self, alpha: float) -> Judgement:
        """The same at another alpha."""
        return self._judgement({name: m.judge_at(alpha) for name, m in self.members.items()})

    def _judgement(self, judgements: Mapping[str, Judgement]) -> Judgement:
        verdicts = [judgement.verdict for judgement in judgements.values()]
        verdict = agreed_verdict(verdicts, self.case.needed)
        reasons = [
            ": ".join([name, judgement.verdict.value, *judgement.reasons[:1]])
            for name, judgement in judgements.items()
            if judgement.difference is None
        ]
        regressed = sum(v is Verdict.REGRESSED for v in verdicts)
        if regressed:
            needed = "is" if self.case.needed == 1 else "are"
            reasons.append(
                f"{regressed} of {len(verdicts)} encoders regressed, and {self.case.needed} "
                f"{needed} needed"
            )
        elif verdict is Verdict.INCONCLUSIVE:
            unsure = [name for name, j in judgements.items() if j.verdict is verdict]
            reasons.append(f"a drop larger than tolerated is not excluded by {', '.join(unsure)}")
        return Judgement(verdict, reasons=tuple(reasons))


def evaluate_agreement(
    evaluator: Evaluator,
    suite_file: Path,
    case: AgreedCase,
    policy: Policy,
    overrides: Overrides | None = None,
) -> EvaluatedAgreement:
    """Measure and judge the case of every encoder.

    policy: of the case, with its own alpha. overrides: what the test says of how it is judged.
    Raises what measuring and reading baselines raise, for any of the encoders, and MeasurementError
    where two of them are one model, whose vote would count twice, or where an encoder that is held
    out is the reward's under another name.
    """
    _refuse_one_model(evaluator, suite_file, case)
    _refuse_reward_held_out(evaluator, suite_file)
    share = upper_share(case.needed, len(case.members))
    members: dict[str, EvaluatedCase] = {}
    places: dict[str, Place] = {}
    for encoder, member in case.members.items():
        own = evaluator.suites.claim(suite_file, member.key, overrides or Overrides()).policy
        own = replace(
            own, gate=policy.gate, alpha=policy.alpha, primary=policy.primary, upper_share=share
        )
        accepted = evaluator.suites.accepted(member.key)
        evaluator.suites.check_policy(suite_file, member.key, own, *accepted)
        members[encoder], place = _evaluate(evaluator, suite_file, member, own)
        if place is not None:
            places[encoder] = place
    return EvaluatedAgreement(case, policy, members, places)


def _evaluate(
    evaluator: Evaluator, suite_file: Path, case: Case, policy: Policy
) -> tuple[EvaluatedCase, Place | None]:
    """One encoder's case, and its place in the series of the run, if it is in one."""
    references = read_references(evaluator, case)
    series = enter_series(evaluator, suite_file, case, policy, references)
    if series is None:
        return evaluate_case(evaluator, suite_file, case, policy, references, whole=False), None
    try:
        policy = series.adjusted(policy)
        evaluated = evaluate_case(evaluator, suite_file, case, policy, references, whole=False)
    except CepError:
        series.settle(Verdict.ERROR)
        raise
    series.settle(evaluated.judgement.verdict, evaluated)
    return evaluated, series.place


def part_ways(
    evaluator: Evaluator, evaluated: EvaluatedAgreement, votes: Sequence[EncoderVote]
) -> list[str]:
    """Keep the scores of a checkpoint in its series; warnings where encoders part ways over it.

    votes: which encoder is the reward's, and which are held out. Without either there is nothing to
    part from, and nothing is kept.
    Raises SeriesError and WriteError.
    """
    file = evaluator.series
    if file is None or not evaluated.places or not any(vote.reward for vote in votes):
        return []
    case = evaluated.case.key
    for vote in votes:
        place = evaluated.places[vote.encoder]
        _keep_scores(file, case, vote, evaluated.members[vote.encoder], place)
    expected = next(iter(evaluated.places.values())).expected
    kept = [record for record in read_scores(file.path) if record.case == str(case)]
    return [parting.sentence for parting in partings(kept, expected) if parting.parted]


def keep_accepted_scores(
    evaluator: Evaluator, suite_file: Path, evaluated: EvaluatedCase, series: SeriesCase
) -> None:
    """Keep the scores of a checkpoint that is accepted, where an encoder of the case is the reward.

    A run that accepts has no case that several encoders decide, which would keep them.
    evaluated: of one of the encoders. Raises WriteError.
    """
    key, suite = evaluated.case.key, evaluator.suites.get(suite_file).suite
    members, gate = suite.agreements[evaluated.case.joint].members, suite.table.gate
    if gate.reward not in members:
        return
    encoder = next(name for name, metric in members.items() if metric == key.metric)
    vote = _unmeasured_vote(encoder, key.metric, gate.held_out, gate.reward)
    joint = replace(key, metric=evaluated.case.joint)
    _keep_scores(series.file, joint, vote, evaluated, series.place)


def _keep_scores(
    file: SeriesFile, case: CaseKey, vote: EncoderVote, member: EvaluatedCase, place: Place
) -> None:
    """case: that several encoders decide. member: the case of the vote's encoder."""
    measurement = member.measurement
    sets = bool(measurement.sizes)
    scores = measurement.blocks if sets else measurement.scores
    record = EncoderScores(
        format=1,
        case=str(case),
        encoder=vote.encoder,
        look=place.look,
        model=measurement.model.get("identity", ""),
        identity=comparable_digest(measurement.identity),
        higher_is_better=measurement.higher_is_better,
        sets=sets,
        tolerance=member.policy.tolerance,
        alpha=place.alpha,
        reward=vote.reward,
        held_out=vote.held_out,
        scores={category: dict(part) for category, part in scores.items()},
        clusters=dict(measurement.clusters),
    )
    write_scores(file.path, record)


def _refuse_one_model(evaluator: Evaluator, suite_file: Path, case: AgreedCase) -> None:
    """Raise MeasurementError where two encoders are one model, as `--encoder` can make them."""
    roles = evaluator.suites.get(suite_file).assignments.roles
    seen: dict[str, str] = {}
    for encoder in case.members:
        bound = evaluator.models.runner(roles[encoder]).bound
        other = seen.setdefault(bound.fingerprint, encoder)
        if other != encoder:
            msg = (
                f"encoders {other!r} and {encoder!r} are the same model ({bound.spec}), whose vote "
                "would count twice: name another one for one of them"
            )
            raise MeasurementError(msg)


def _refuse_reward_held_out(evaluator: Evaluator, suite_file: Path) -> None:
    """Raise MeasurementError where a held-out encoder has the weights of the reward's.

    Names and specs are compared when the suite is read; another path, another batch size or
    `--encoder` can still lead to the same model.
    """
    prepared = evaluator.suites.get(suite_file)
    gate, roles = prepared.suite.table.gate, prepared.assignments.roles
    if gate.reward is None or gate.reward not in roles:
        return
    reward = evaluator.models.runner(roles[gate.reward]).bound
    for encoder in gate.held_out:
        if encoder in roles and (
            evaluator.models.runner(roles[encoder]).bound.fingerprint == reward.fingerprint
        ):
            msg = (
                f"gate.held_out: encoder {encoder!r} is the same model as the reward's, "
                f"{gate.reward!r} ({reward.spec}), and what is held out may be no reward"
            )
            raise MeasurementError(msg)


def agreed_result(evaluated: EvaluatedAgreement, unmeasured: CaseResult) -> CaseResult:
    """The record of a case that several encoders decided. unmeasured: the record so far."""
    judgement = evaluated.judgement
    votes = [
        replace_fields(
            vote,
            verdict=member.judgement.verdict.value,
            tolerance=member.policy.tolerance,
            value=member.measurement.value,
            baseline=member.judgement.baseline_value,
            difference=member.judgement.difference,
            low=member.judgement.low,
            high=member.judgement.high,
        )
        for vote, member in zip(unmeasured.votes, evaluated.members.values(), strict=True)
    ]
    return replace_fields(
        unmeasured,
        verdict=judgement.verdict.value,
        reasons=list(judgement.reasons),
        method=METHOD if evaluated.policy.statistical else "",
        model=dict(evaluated.measurement.model),
        n=max(member.measurement.n for member in evaluated.members.values()),
        votes=votes,
        notes=[_vote_line(vote) for vote in votes],
        warnings=list(
            dict.fromkeys(
                f"{name}: {warning}"
                for name, member in evaluated.members.items()
                for warning in (*member.measurement.warnings, *member.judgement.warnings)
            )
        ),
    )


def unmeasured_votes(
    case: AgreedCase, held_out: Sequence[str], reward: str | None
) -> list[EncoderVote]:
    """The encoders of a case before they have said anything."""
    return [
        _unmeasured_vote(encoder, member.key.metric, held_out, reward)
        for encoder, member in case.members.items()
    ]


def _unmeasured_vote(
    encoder: str, metric: str, held_out: Sequence[str], reward: str | None
) -> EncoderVote:
    return EncoderVote(encoder, metric, held_out=encoder in held_out, reward=encoder == reward)


def _vote_line(vote: EncoderVote) -> str:
    """What an encoder says, in a line."""
    mark = " (held out)" if vote.held_out else " (reward)" if vote.reward else ""
    if vote.difference is None or vote.value is None:
        return f"{vote.encoder}{mark}: {vote.verdict}"
    bounds = _bounds(vote.low, vote.high)
    return f"{vote.encoder}{mark}: {vote.verdict}, {vote.value:.4f}, {vote.difference:+.4f}{bounds}"


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{low:+.4f}, {high:+.4f}]"
