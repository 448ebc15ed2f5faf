"""The record of a judged case, as reports read it, made from what was measured and judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pytest_cepbench.chains import Chain
from pytest_cepbench.errors import ImageError
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.gate import CaseKey, Policy, Verdict
from pytest_cepbench.gate.baseline import record_of
from pytest_cepbench.gate.compare import Loser
from pytest_cepbench.gate.sensitivity import remarks_on_accepting, tolerance_remark
from pytest_cepbench.report import (
    AnchorShown,
    CaseResult,
    ChainShown,
    HopShown,
    LinkShown,
    ModelShown,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, SuiteRun
from pytest_cepbench.suites.model_pool import describe_role

MOST_LOSERS = 5
"""Samples that are shown of a case that got worse."""

_CHAINS_SHOWN = 3


@dataclass(frozen=True)
class Attribution:
    """The hop of the chain at which a regressed case lost.

    text: in words; empty where it was not followed.
    hops: in numbers.
    """

    text: str = ""
    hops: Sequence[HopShown] = ()


@dataclass(frozen=True)
class CaseVerdict:
    """A verdict that was not reached by measuring one case: an error, or that of a suite.

    alpha: at which a suite is judged; None where no statistics are used.
    method: of the statistics.
    model: the model under test, as baselines name it.
    """

    verdict: Verdict
    reasons: Sequence[str] = ()
    notes: Sequence[str] = ()
    alpha: float | None = None
    method: str = ""
    model: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseHeader:
    """A case and how it is judged, known before it is measured.

    nodeid: of its test.
    key: its suite, part and metric.
    label: its metric's name for people.
    of: number of cases of its suite.
    policy: how it is judged.
    strict: whether it fails where it stays undecided.
    """

    nodeid: str
    key: CaseKey
    label: str
    of: int
    policy: Policy
    strict: bool

    @property
    def alpha(self) -> float | None:
        """The case's share of alpha; None where no statistics are used."""
        return self.policy.alpha if self.policy.statistical else None

    def without_measurement(self, verdict: CaseVerdict) -> CaseResult:
        """The record of a case that has a verdict and no measurement of its own."""
        return CaseResult(
            nodeid=self.nodeid,
            suite=self.key.suite,
            part=self.key.part,
            metric=self.key.metric,
            label=self.label,
            verdict=verdict.verdict.value,
            tolerance=self.policy.tolerance,
            of=self.of,
            gate=self.policy.gate,
            alpha=verdict.alpha,
            primary=self.policy.primary,
            strict=self.strict,
            origins=dict(self.policy.origins),
            method=verdict.method,
            notes=list(verdict.notes),
            reasons=list(verdict.reasons),
            model=dict(verdict.model),
        )

    def with_measurement(
        self,
        evaluated: EvaluatedCase,
        run: SuiteRun,
        case: Case,
        store: Store,
        *,
        messages: Sequence[str],
        accepted: bool,
        refused: str,
        attribution: Attribution,
    ) -> CaseResult:
        """The record of a measured case.

        run: measured it.
        store: keeps the images that reports show.
        messages: on memory and models, from while it was measured.
        accepted: whether the measurement is to become the baseline.
        refused: why it may not, where that was asked for.
        """
        policy = self.policy
        measurement, judgement = evaluated.measurement, evaluated.judgement
        baseline = evaluated.references.baseline
        return CaseResult(
            nodeid=self.nodeid,
            suite=self.key.suite,
            part=self.key.part,
            metric=self.key.metric,
            label=self.label,
            verdict=judgement.verdict.value,
            tolerance=policy.tolerance,
            of=self.of,
            gate=policy.gate,
            alpha=self.alpha,
            level=judgement.alpha,
            primary=policy.primary,
            strict=self.strict,
            origins=dict(policy.origins),
            higher_is_better=measurement.higher_is_better,
            value=measurement.value,
            baseline=judgement.baseline_value,
            difference=judgement.difference,
            low=judgement.low,
            high=judgement.high,
            method=judgement.method,
            units=judgement.units,
            visible=judgement.visible,
            looks=list(evaluated.looks),
            partial=evaluated.partial,
            n=measurement.n,
            accepted=accepted,
            failures=dict(measurement.failures),
            curve=list(measurement.curve),
            notes=[
                *messages,
                *measurement.notes,
                *judgement.statements,
                *_calibration_notes(evaluated, policy),
                *_partial_notes(evaluated, policy),
            ],
            reasons=list(judgement.reasons),
            model=dict(measurement.model),
            identity=dict(measurement.identity),
            anchor=_anchor(evaluated, policy),
            attribution=attribution.text,
            hops=list(attribution.hops),
            chains=_chains(run, case, judgement.losers[:MOST_LOSERS], store),
            measured=record_of(measurement),
            floor=measurement.floor,
            baseline_floor=None if baseline is None else baseline.floor,
            warnings=[
                *measurement.warnings,
                *run.warnings(measurement),
                *judgement.warnings,
                *(remarks_on_accepting(measurement) if accepted else ()),
            ],
            refused=refused,
            models=[
                ModelShown(seat, bound.spec, bound.fingerprint, describe_role(bound))
                for seat, bound in run.models(measurement).items()
            ],
        )


def _anchor(evaluated: EvaluatedCase, policy: Policy) -> AnchorShown | None:
    since = evaluated.judgement.since_anchor
    if since is None:
        return None
    return AnchorShown(
        value=since.baseline_value,
        difference=since.difference,
        low=since.low,
        high=since.high,
        tolerance=policy.since_anchor,
        verdict=since.verdict.value,
    )


def _partial_notes(evaluated: EvaluatedCase, policy: Policy) -> Iterator[str]:
    """A note that a case without statistics was judged by its first samples alone."""
    if evaluated.partial and not policy.statistical:
        yield f"judged on the first {evaluated.looks[-1]} samples: see --cep-inconclusive=more"


def _calibration_notes(evaluated: EvaluatedCase, policy: Policy) -> Iterator[str]:
    """What the calibration of the baseline's model says of the tolerance."""
    baseline, units = evaluated.references.baseline, evaluated.judgement.units
    if baseline is not None and baseline.noise is not None and policy.statistical and units:
        remark = tolerance_remark(baseline.noise, units, policy)
        yield from () if remark is None else (remark,)


def _chains(run: SuiteRun, case: Case, losers: Sequence[Loser], store: Store) -> list[ChainShown]:
    """The chains of the samples that lost most; images that reports show are put into the store."""
    chains: list[ChainShown] = []
    for loser in losers:
        excerpt = run.show(case, loser.sample)
        if excerpt is None:
            continue
        chain = excerpt.chain
        failure = excerpt.failure or chain.failure
        generation = chain.failed_at if excerpt.failure is None else excerpt.failed_at
        where = "" if generation is None else f" at generation {generation}"
        chains.append(
            ChainShown(
                sample=loser.sample,
                score=loser.candidate,
                baseline=loser.baseline,
                links=_links(chain, excerpt.marks, store) if len(chains) < _CHAINS_SHOWN else [],
                failure=f"{failure.kind}{where}: {failure.detail}" if failure else None,
                remark=excerpt.remark,
            )
        )
    return chains


def _links(chain: Chain, marks: Mapping[int, float], store: Store) -> list[LinkShown]:
    links = []
    for generation, link in enumerate(chain.links):
        if link.source is not None and not store.image_path(link.digest).exists():
            with suppress(ImageError):  # changed since it was measured: the report goes without it
                store.put_image(link.source.load())
        is_image = link.kind == "image" and link.recorded
        links.append(
            LinkShown(
                text=link.text if link.recorded else f"({link.kind} not recorded)",
                image=link.digest if is_image else None,
                similarity=marks.get(generation),
            )
        )
    return links
