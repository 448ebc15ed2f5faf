"""The record of a measured case, as reports read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from pytest_cepbench.chains import Chain
from pytest_cepbench.errors import ImageError
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.gate.baseline import record_of
from pytest_cepbench.gate.compare import Loser
from pytest_cepbench.gate.sensitivity import remarks_on_accepting, tolerance_remark
from pytest_cepbench.report import AnchorShown, CaseResult, ChainShown, LinkShown, ModelShown
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, SuiteRun
from pytest_cepbench.suites.model_pool import describe_role

MOST_LOSERS = 5
"""Samples that are shown of a case that got worse."""

_CHAINS_SHOWN = 3


def measured_case(
    unmeasured: CaseResult,
    evaluated: EvaluatedCase,
    run: SuiteRun,
    store: Store,
    *,
    messages: Sequence[str],
    accepted: bool,
    refused: str,
) -> CaseResult:
    """The record of a case that was measured.

    unmeasured: the case, and how it is judged.
    run: measured it.
    store: keeps the images that reports show.
    messages: on memory and models, from while it was measured.
    accepted: whether the measurement is to become the baseline.
    refused: why it may not, where that was asked for.
    """
    measurement, judgement = evaluated.measurement, evaluated.judgement
    baseline = evaluated.references.baseline
    judged = replace(
        unmeasured,
        verdict=judgement.verdict.value,
        level=judgement.alpha,
        baseline=judgement.baseline_value,
        baseline_floor=None if baseline is None else baseline.floor,
        difference=judgement.difference,
        low=judgement.low,
        high=judgement.high,
        method=judgement.method,
        units=judgement.units,
        visible=judgement.visible,
        reasons=list(judgement.reasons),
        anchor=_anchor(evaluated),
        chains=_chains(run, evaluated.case, judgement.losers[:MOST_LOSERS], store),
        looks=list(evaluated.looks),
        partial=evaluated.partial,
        accepted=accepted,
        refused=refused,
    )
    remarks = remarks_on_accepting(measurement) if accepted else ()
    return replace(
        judged,
        higher_is_better=measurement.higher_is_better,
        value=measurement.value,
        n=measurement.n,
        failures=dict(measurement.failures),
        curve=list(measurement.curve),
        floor=measurement.floor,
        model=dict(measurement.model),
        identity=dict(measurement.identity),
        measured=record_of(measurement),
        models=[
            ModelShown(role, bound.spec, bound.fingerprint, describe_role(bound))
            for role, bound in run.models(measurement).items()
        ],
        notes=[
            *messages,
            *measurement.notes,
            *judgement.statements,
            *_calibration_notes(evaluated),
            *_partial_notes(evaluated),
        ],
        warnings=[*measurement.warnings, *run.warnings(measurement), *judgement.warnings, *remarks],
    )


def _anchor(evaluated: EvaluatedCase) -> AnchorShown | None:
    since = evaluated.judgement.since_anchor
    if since is None:
        return None
    return AnchorShown(
        value=since.baseline_value,
        difference=since.difference,
        low=since.low,
        high=since.high,
        tolerance=evaluated.policy.since_anchor,
        verdict=since.verdict.value,
    )


def _partial_notes(evaluated: EvaluatedCase) -> Iterator[str]:
    """A note that a case without statistics was judged by its first samples alone."""
    if evaluated.partial and not evaluated.policy.statistical:
        yield f"judged on the first {evaluated.looks[-1]} samples: see --cep-inconclusive=more"


def _calibration_notes(evaluated: EvaluatedCase) -> Iterator[str]:
    """What the calibration of the baseline's model says of the tolerance."""
    baseline, policy = evaluated.references.baseline, evaluated.policy
    units = evaluated.judgement.units
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
