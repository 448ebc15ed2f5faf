"""What reports show of a measured case beside its numbers: models, chains, interleaved answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import numpy as np
from msgspec.structs import replace

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.chains import Chain
from pytest_cepbench.chains.answers.battles import OrderedVerdict
from pytest_cepbench.chains.steps import recall
from pytest_cepbench.datasets.sample import Dataset, Seed
from pytest_cepbench.errors import ArtifactError, BaselineError, CepError
from pytest_cepbench.evaluation.evaluator import EvaluatedCase, Evaluator
from pytest_cepbench.gate import Measurement, Verdict
from pytest_cepbench.gate.baseline import answers_digest
from pytest_cepbench.gate.measurement import Scores, rounded
from pytest_cepbench.measures.answer_data import AnswerExcerpt, ExcerptStep, OpponentName
from pytest_cepbench.measures.base import ChainExcerpt
from pytest_cepbench.measures.chain_data import first_difference
from pytest_cepbench.metrics.uncertainty import t_upper_quantile
from pytest_cepbench.report.result import (
    AnswerShown,
    BaselineModel,
    ChainShown,
    CurveShown,
    HopShown,
    LinkShown,
    ModelShown,
    Shown,
    StepShown,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.model_pool import describe_role
from pytest_cepbench.suites.stored_chains import (
    attribute,
    is_model_of,
    stored_chains,
)
from pytest_cepbench.suites.suite_run import SuiteRun

MOST_SAMPLES = 5
"""Samples that are named of a case that got worse."""

_FEWEST_GENERATIONS = 2  # of a curve

SHOWN_WHOLE = 3
"""The first of them, which are shown with their artifacts."""


def shown_of_case(
    evaluator: Evaluator,
    run: SuiteRun,
    evaluated: EvaluatedCase,
    *,
    accepting: bool,
    accepted: bool,
) -> Shown:
    """What reports show of a case beside its numbers.

    Of a regressed case of chains the hops at which it lost its score, too.
    """
    measurement, settings, case = evaluated.measurement, evaluator.settings, evaluated.case
    reference, messages = evaluated.reference, evaluator.drain_messages()
    if isinstance(run, ChainRun):
        shown = shown_chains(run, evaluated, evaluator.store, settings.show)
    else:
        answers = shown_answers(
            run, evaluated, evaluator.store, accepted=accepted, requested=settings.show
        )
        shown = Shown(answers=answers)
    most, attribution, hops = settings.attribute, "", []
    regressed = evaluated.judgement.verdict is Verdict.REGRESSED and evaluated.policy.primary
    if regressed and most and not accepting and reference and isinstance(run, ChainRun):
        whole = run.samples(case)
        if not run.per_sample(case) and whole > most:
            attribution = (
                f"sets are followed through the chain whole: --cep-attribute={whole} does that"
            )
        else:
            samples = evaluated.losers[:most] if run.per_sample(case) else []
            found = attribute(run, case, reference.model.get("step", ""), samples)
            attribution = found.said
            hops = [HopShown(hop.start, hop.role, hop.generation, hop.cost) for hop in found.hops]
    compared = reference is not None and evaluated.differences
    return replace(
        shown,
        notes=[*messages, *measurement.notes],
        warnings=[*measurement.warnings, *run.warnings(measurement)],
        curve=list(measurement.curve),
        judge=measurement.judge,
        models=[
            ModelShown(role, own.bound.spec, own.bound.fingerprint, describe_role(own.bound))
            for role, own in run.needed(measurement).items()
        ],
        baseline_model=_baseline_model(evaluated.baseline),
        attribution=attribution,
        hops=hops,
        differences=evaluated.differences,
        opponents=answers_digest(reference) if reference is not None and compared else "",
        facts=measurement.facts,
    )


def _baseline_model(baseline: Measurement | None) -> BaselineModel | None:
    if baseline is None:
        return None
    model, fingerprints = baseline.model, list[str]()
    with suppress(BaselineError):  # a baseline by hand has no record of its steps
        fingerprints = [bound.fingerprint for bound in recall(model.get("step", ""))]
    return BaselineModel(
        role=model.get("role", ""),
        spec=model.get("spec", ""),
        identity=model.get("identity", ""),
        fingerprint=" + ".join(fingerprints),
        reason=baseline.accepted.get("reason", ""),
    )


def scores_of(evaluated: EvaluatedCase, sample: str) -> tuple[float, float | None] | None:
    """The score of a sample, and that of the baseline (or of the anchor, where that is the
    reference), None where it was not compared; None where the case has no score of it.
    """

    def score_in(scores: Scores) -> float | None:
        return next((part[sample] for part in scores.values() if sample in part), None)

    reference = evaluated.reference if sample in evaluated.differences else None
    score = None if evaluated.measurement.sizes else score_in(evaluated.paired_scores)
    before = None if reference is None else score_in(reference.scores)
    return None if score is None else (score, before)


def keep_seed(source: Seed, digest: str, store: Store) -> None:
    """Put an image or a sound of the data set into the store, where reports find it."""
    if not store.artifact_path(digest).exists():
        with suppress(ArtifactError):  # changed since it was measured: the report goes without it
            store.put_artifact(source.load())


def shown_chains(
    run: ChainRun, evaluated: EvaluatedCase, store: Store, requested: Iterable[str] = ()
) -> Shown:
    """The chains of the samples that lost most, of the median one and of those that the engineer
    named, and the mean similarities.

    Images that reports show are put into the store. The chains of the baseline's model come from
    stores alone: where they are not there, the sentence of `reference_chains` says how to get them.

    requested: further samples whose chains are shown.
    """
    case, measurement, differences = evaluated.case, evaluated.measurement, evaluated.differences
    parts = () if measurement.sizes else measurement.scores.values()  # else one score of a set
    scored = {sample for part in parts for sample in part}
    units = {s.id: s.unit for s in run.data.dataset.samples if s.id in scored}
    curve_now = similarity_curve(lambda sample: run.show(case, sample), units)
    earlier, missing, curve_then = _reference_chains(run, evaluated, units, curve_now)

    def chain(sample: str, *, whole: bool = True) -> ChainShown | None:
        scores = scores_of(evaluated, sample)
        # Showing a sample that was not looked at would have the models play it.
        excerpt = None if scores is None else run.show(case, sample)
        if scores is None or excerpt is None:
            return None
        before, differs = earlier(sample, excerpt) if whole else None, None
        if before is not None:  # as far as stores have both
            own, other = excerpt.chain, before.chain
            if other.failure is None and len(other.links) < len(own.links):
                own = Chain(own.sample, own.links[: len(other.links)])
            differs = first_difference(own, other)
        return ChainShown(
            sample=sample,
            score=scores[0],
            baseline=scores[1],
            links=_links(excerpt, store) if whole else [],
            failure=_failure(excerpt),
            remark=excerpt.remark,
            baseline_links=_links(before, store),
            baseline_failure=_failure(before),
            first_difference=differs,
        )

    shown: list[ChainShown] = []
    for sample in evaluated.losers[:MOST_SAMPLES]:
        lost = chain(sample, whole=len(shown) < SHOWN_WHOLE)
        if lost is not None:
            shown.append(lost)
    ordered = sorted(differences, key=lambda sample: (differences[sample], sample))
    # The sample in the middle; of two the one that lost more.
    middle = ordered[(len(ordered) - 1) // 2] if ordered else None
    drawn = {lost.sample for lost in shown if lost.links} | {middle}
    named = [sample for sample in dict.fromkeys(requested) if sample not in drawn]
    return Shown(
        chains=shown,
        median=None if middle is None else chain(middle),
        requested=[found for sample in named if (found := chain(sample)) is not None],
        reference_chains=missing,
        curve_now=curve_now,
        curve_reference=curve_then,
    )


def _reference_chains(
    run: ChainRun,
    evaluated: EvaluatedCase,
    units: Mapping[str, str],
    curve_now: CurveShown | None,
) -> tuple[Callable[[str, ChainExcerpt], ChainExcerpt | None], str, CurveShown | None]:
    """The chains of the baseline's or the anchor's model, as far as stores have them.

    units: of the samples with a score.
    Returns what gives a sample's chain beside the one that was measured now, why some are missing
    and how to have them, and the curve of their similarities; None unless all are there.
    """

    def none(_: str, __: ChainExcerpt) -> None:
        return None

    case, reference, differences = evaluated.case, evaluated.reference, evaluated.differences
    if reference is None or not differences:
        return none, "", None
    name, step = evaluated.judgement.reference, reference.model.get("step", "")
    if not step or run.assignments.replay is not None:
        return none, _why_missing(name, run, reference, 0, len(differences)), None
    try:
        if is_model_of(run, case, step):  # they are those that were measured
            curve = curve_now if differences.keys() == units.keys() else None
            return lambda sample, now: now if sample in differences else None, "", curve
        stored, curve = stored_chains(run, step), None
        known = frozenset(stored.known(case, differences))
        if known and known == units.keys():
            curve = similarity_curve(stored.scored(case, known).get, units)
    except CepError as error:  # the verdict stands without them
        return none, f"The {name}'s chains cannot be shown: {error}", None

    def excerpt(sample: str, now: ChainExcerpt) -> ChainExcerpt | None:
        with suppress(CepError):  # the verdict stands without it
            if sample in known:
                return stored.excerpt(case, sample, now.chain.links[0].kind)
        return None

    whole = len(known) == len(differences)
    missing = "" if whole else _why_missing(name, run, reference, len(known), len(differences))
    return excerpt, missing, curve


def _why_missing(name: str, run: ChainRun, reference: Measurement, known: int, samples: int) -> str:
    """Why chains of the reference's model are not shown, and how to have them."""
    if run.assignments.replay is not None or reference.model.get("role") == "replay":
        return f"The {name}'s chains cannot be shown: chains made elsewhere are not in the store."
    if not reference.model.get("step"):
        return (
            f"The {name}'s chains cannot be shown: its file does not say which steps it was "
            "measured with. A baseline that this version accepts (--snapshot-update) does."
        )
    which = f"{known} of {samples}" if known else "none"
    return (
        f"The store has {which} of the {name}'s chains. Gate its model, "
        f"{reference.model.get('spec', '')}, with this store, then repeat this run, which computes "
        "nothing twice; or name a store that has them: --cep-shared=DIR or --cep-shared=URL"
    )


def _failure(excerpt: ChainExcerpt | None) -> str | None:
    """What stopped a chain, and where."""
    failure = None if excerpt is None else excerpt.failure or excerpt.chain.failure
    if excerpt is None or failure is None:
        return None
    generation = excerpt.chain.failed_at if excerpt.failure is None else excerpt.failed_at
    where = "" if generation is None else f" at generation {generation}"
    return f"{failure.kind}{where}: {failure.detail}"


def _links(excerpt: ChainExcerpt | None, store: Store) -> list[LinkShown]:
    links = []
    for generation, link in enumerate(() if excerpt is None else excerpt.chain.links):
        if link.source is not None:
            keep_seed(link.source, link.digest, store)
        links.append(
            LinkShown(
                text=link.text if link.recorded else f"({link.kind} not recorded)",
                image=link.digest if link.kind == "image" and link.recorded else None,
                similarity=None if excerpt is None else excerpt.marks.get(generation),
                sound=link.digest if link.kind == "sound" else None,
            )
        )
    return links


def similarity_curve(
    show: Callable[[str], ChainExcerpt | None], units: Mapping[str, str]
) -> CurveShown | None:
    """The curve of samples; None where a sample is not shown, or with other generations.

    show: gives the chain of a sample id with its similarities.
    units: sample id -> the independent unit that it belongs to.
    """
    rows: list[list[float]] = []
    generations: tuple[int, ...] = ()
    for name in units:
        excerpt = show(name)
        marks = {} if excerpt is None else excerpt.marks
        generations = generations or tuple(sorted(marks))
        if len(generations) < _FEWEST_GENERATIONS or tuple(sorted(marks)) != generations:
            return None
        rows.append([marks[generation] for generation in generations])
    if not rows:
        return None
    values = np.array(rows)
    mean, margin = values.mean(axis=0), np.zeros(len(generations))
    _, places = np.unique(list(units.values()), return_inverse=True)
    count = int(places.max()) + 1
    if count > 1:  # rows of one unit are not independent: their deviations add up
        sums = np.zeros((count, len(generations)))
        np.add.at(sums, places, values - mean)
        error = np.sqrt(count / (count - 1) * (sums**2).sum(axis=0)) / len(values)
        margin = t_upper_quantile(0.025, count - 1) * error
    mean, low, high = ([*map(rounded, own)] for own in (mean, mean - margin, mean + margin))
    return CurveShown(list(generations), mean, low, high, len(rows))


# -- interleaved answers ---------------------------------------------------------------------------

_OPPONENTS: Mapping[OpponentName, str] = {
    "accepted": "accepted answer",
    "anchor": "anchor's answer",
    "reference": "reference answer",
}


def shown_answers(
    run: SuiteRun,
    evaluated: EvaluatedCase,
    store: Store,
    *,
    accepted: bool,
    requested: Iterable[str] = (),
) -> list[AnswerShown]:
    """The answers to the questions of the samples that lost most, beside those that they battled.

    Of battles whose answers are accepted, the answers that replace others. Images that reports
    show are put into the store.

    requested: further samples whose answers are shown.
    """
    assert isinstance(run, AnswerRun)
    replacing = accepted and bool(evaluated.measurement.answers)
    lost = {sample: evaluated.differences[sample] for sample in evaluated.losers}
    if replacing:
        lost = _changed(evaluated)
    named = set(requested)
    anchor = not replacing and evaluated.lost_since_anchor
    answers: list[AnswerShown] = []
    for sample in dict.fromkeys((*_varied(lost, run.dataset)[:MOST_SAMPLES], *requested)):
        scores = scores_of(evaluated, sample)
        if replacing and sample in lost:
            scores = (rounded(EVEN + lost[sample]), EVEN)
        excerpt = None if scores is None else run.show(evaluated.case, sample, anchor=anchor)
        if scores is None or excerpt is None:
            continue
        whole = len(answers) < SHOWN_WHOLE or sample in named
        question, steps, opposing = (
            _steps(part, store) if whole else []
            for part in (excerpt.question, excerpt.steps, excerpt.opposing)
        )
        failure, remark = excerpt.failure, excerpt.remark
        opponent = "" if excerpt.opponent is None else _OPPONENTS[excerpt.opponent]
        if opponent and excerpt.opposing_lost:
            remark = f"the {opponent} is not in the store"
        answers.append(
            AnswerShown(
                sample=sample,
                score=scores[0],
                baseline=scores[1],
                question=question,
                steps=steps,
                opponent=opponent,
                opposing=opposing,
                verdicts=_verdicts(excerpt),
                failure=f"{failure.kind}: {failure.detail}" if failure else None,
                remark=remark,
            )
        )
    return answers


def _varied(lost: Mapping[str, float], dataset: Dataset) -> list[str]:
    """The samples that lost most first, those that lost alike in turn from every category.

    Battles have few different scores, so the first of many equal losers would be of one category.
    """
    homes = {sample.id: sample.categories[0] for sample in dataset.samples}
    counts: Counter[tuple[float, str]] = Counter()
    turns: dict[str, int] = {}
    for name in sorted(lost):
        alike = (lost[name], homes[name])
        turns[name] = counts[alike]
        counts[alike] += 1
    return sorted(turns, key=lambda name: (lost[name], turns[name]))


def _changed(evaluated: EvaluatedCase) -> dict[str, float]:
    """What the samples lost whose answers are not the accepted ones, against those."""
    baseline, now = evaluated.baseline, evaluated.measurement
    accepted = {} if baseline is None else baseline.answers
    scores = {name: score for part in now.scores.values() for name, score in part.items()}
    return {
        sample: scores[sample] - EVEN
        for sample, digest in now.answers.items()
        if accepted.get(sample, digest) != digest and sample in scores
    }


def _steps(steps: Iterable[ExcerptStep], store: Store) -> list[StepShown]:
    shown = []
    for step in steps:
        if step.source is not None and step.image is not None:
            keep_seed(step.source, step.image, store)
        shown.append(StepShown(step.text, step.image))
    return shown


def _verdicts(excerpt: AnswerExcerpt) -> list[str]:
    """The verdicts in the orders that were asked, or why no judge was asked."""
    if excerpt.outcome is None or excerpt.opponent is None:
        return []
    other = _OPPONENTS[excerpt.opponent]
    if excerpt.outcome.verdicts:
        return [_verdict(verdict, other) for verdict in excerpt.outcome.verdicts]
    if excerpt.steps and excerpt.opposing:
        return ["the answers are equal: no judge was asked"]
    if excerpt.opposing_lost:
        return []
    if not excerpt.steps and not excerpt.opposing:
        return ["both answers are missing: no judge was asked"]
    return [f"the {other if excerpt.steps else 'new answer'} is missing: no judge was asked"]


def _verdict(verdict: OrderedVerdict, other: str) -> str:
    """A verdict in words. other: the opponent's answer."""
    order = ["new answer", other] if verdict.candidate_first else [other, "new answer"]
    winner = verdict.winner
    if isinstance(winner, Failure):
        words = f"no verdict ({winner.kind}: {winner.detail})"
    else:
        preferred = order[0] if winner in ("A", "Tie(A)") else order[1]
        tie = winner.startswith("Tie")
        words = f"a tie that leans to the {preferred}" if tie else f"the {preferred} is better"
    return f"{order[0]} shown first: {words}"
