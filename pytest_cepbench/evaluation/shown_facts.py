"""What became of facts, as reports read it."""

from __future__ import annotations

from dataclasses import asdict
from math import isnan

from pytest_cepbench.metrics.facts import FactSummary, KindSummary
from pytest_cepbench.report import FactKindShown, FactsShown, FactTableShown, RoleLossShown


def shown_facts(summary: FactSummary) -> FactsShown:
    """The record of a summary, of built-in types."""
    return FactsShown(
        generations=list(summary.generations),
        precision=summary.precision,
        unanswered=summary.unanswered,
        every=_shown_kind(summary.every),
        kinds=[_shown_kind(kind) for kind in summary.kinds],
    )


def _shown_kind(summary: KindSummary) -> FactKindShown:
    shown = FactKindShown(
        kind=summary.kind,
        facts=summary.facts,
        losses=[RoleLossShown(**asdict(loss)) for loss in summary.losses],
        tables=[
            FactTableShown(pair.text, pair.picture, **asdict(pair.table)) for pair in summary.tables
        ],
    )
    found = summary.half_life
    if found is None:
        return shown
    return FactKindShown(
        kind=shown.kind,
        facts=shown.facts,
        curve=[None if isnan(share) else share for share in found.curve],
        last=found.last,
        half_life=found.value,
        low=found.low,
        high=found.high,
        losses=shown.losses,
        tables=shown.tables,
    )
