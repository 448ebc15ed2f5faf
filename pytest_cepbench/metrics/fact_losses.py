"""Which kinds of facts are lost along chains, in which generation and by which role."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.facts import (
    FactAnswers,
    HalfLife,
    half_life,
    means_by_row,
    order_kinds,
)

FloatArray = npt.NDArray[np.floating[Any]]

Role = Literal["describer", "generator"]


@dataclass(frozen=True)
class RoleLoss:
    """What the steps of one role do to facts.

    role: `describer` or `generator`.
    steps: how many steps of a chain are its own.
    right: facts that were right before such a step, over all steps.
    lost: how many of them are wrong after it.
    wrong: facts that were wrong before such a step.
    regained: how many of them are right after it.
    """

    role: Role
    steps: int
    right: float
    lost: float
    wrong: float
    regained: float


def attribute_losses(answers: Iterable[FloatArray], roles: Sequence[Role]) -> tuple[RoleLoss, ...]:
    """How many of the facts that are right before a step are wrong after it, by role.

    answers: of each sample (n_facts, n_steps) in [0, 1], as in `FactAnswers`; before the first
    step all facts are right. A fact without an answer (NaN) before or after a step is left out of
    it.
    roles: (n_steps,) whose step each is.
    Returns one of each role that has a step, in the order in which they come.
    Raises ValueError where a table has another number of steps.
    """
    tables = [np.asarray(table, dtype=np.float64) for table in answers]
    counts = {role: np.zeros(4) for role in dict.fromkeys(roles)}
    for table in tables:
        if table.ndim != 2 or table.shape[1] != len(roles):
            raise ValueError(f"expected answers after {len(roles)} steps, got {table.shape}")
        before = np.ones(len(table))
        for after, role in zip(table.T, roles, strict=True):
            answered = ~(np.isnan(before) | np.isnan(after))
            held, holds = before[answered], after[answered]
            counts[role] += (
                held.sum(),
                (held * (1 - holds)).sum(),
                (1 - held).sum(),
                ((1 - held) * holds).sum(),
            )
            before = after
    return tuple(
        RoleLoss(role, list(roles).count(role), *map(float, own)) for role, own in counts.items()
    )


@dataclass(frozen=True)
class KindSummary:
    """What became of the facts of one kind.

    facts: how many there are over all samples.
    half_life: of the kind; None where no fact of it was answered.
    losses: what each role loses.
    """

    kind: str
    facts: int
    half_life: HalfLife | None
    losses: tuple[RoleLoss, ...]


@dataclass(frozen=True)
class FactSummary:
    """What became of the facts of many chains.

    generations: that were checked, rising from 1.
    precision: whether what is claimed beyond the facts counts, so that scores are F1, not recall.
    unanswered: answers that checkers did not give; no number stands for them.
    kinds: each that the samples have.
    every: the same over the facts of all kinds.
    """

    generations: tuple[int, ...]
    precision: bool
    unanswered: int
    kinds: tuple[KindSummary, ...]
    every: KindSummary


def summarize_facts(
    checked: Sequence[FactAnswers],
    units: Sequence[str],
    generations: Sequence[int],
    roles: Sequence[Role],
) -> FactSummary:
    """The summary of chains of equal length.

    checked: (n,) the answers of each sample.
    units: (n,) what each sample shares with those that are not independent of it.
    generations: (n_artifacts,) rising from 1, without gaps.
    roles: (n_artifacts,) who made each; a describer's is a text.
    Raises ValueError where there is no sample, or lengths differ.
    """
    if not checked or any(own.artifacts != len(generations) for own in checked):
        raise ValueError(f"expected answers of at least one sample in {len(generations)} artifacts")
    kinds = order_kinds(kind for own in checked for kind in own.kinds)
    return FactSummary(
        generations=tuple(generations),
        precision=all(own.surplus is not None for own in checked),
        unanswered=sum(int(np.isnan(own.answers).sum()) for own in checked),
        kinds=tuple(_summary(kind, checked, units, generations, roles) for kind in kinds),
        every=_summary("", checked, units, generations, roles),
    )


def _summary(
    kind: str,
    checked: Sequence[FactAnswers],
    units: Sequence[str],
    generations: Sequence[int],
    roles: Sequence[Role],
) -> KindSummary:
    """The summary of one kind, or of all facts where no kind is named."""
    tables = [own.answers[[not kind or k == kind for k in own.kinds]] for own in checked]
    stacked = np.concatenate(tables)
    rows = np.repeat(np.arange(len(tables)), [len(own) for own in tables])
    places = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    shares = means_by_row(stacked, rows, len(checked))
    of_units = means_by_row(shares, [places[unit] for unit in units], len(places))
    return KindSummary(
        kind=kind,
        facts=len(stacked),
        half_life=None if np.isnan(of_units).all() else half_life(of_units, generations),
        losses=attribute_losses([stacked], roles),
    )
