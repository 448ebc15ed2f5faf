"""What the answers on the facts of many chains say: by kind of fact, by generation, by role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.facts.answers import FactAnswers, mean_answered, right_share
from pytest_cepbench.metrics.facts.fact import order_kinds
from pytest_cepbench.metrics.facts.half_life import HalfLife, half_life
from pytest_cepbench.metrics.facts.truth_table import (
    Role,
    RoleLoss,
    TruthTable,
    attribute_losses,
    truth_table,
)

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairTable:
    """The 2 x 2 table of two neighboring artifacts.

    text, picture: the generations of the two; one is made from the other.
    """

    text: int
    picture: int
    table: TruthTable


@dataclass(frozen=True)
class KindSummary:
    """What became of the facts of one kind.

    facts: how many there are over all samples.
    half_life: of the kind; None where no fact of it was answered.
    losses: what each role loses.
    tables: one for each pair of a text and a picture, in the order of the chain.
    """

    kind: str
    facts: int
    half_life: HalfLife | None
    losses: tuple[RoleLoss, ...]
    tables: tuple[PairTable, ...]


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
    shares = [right_share(own, kind) if kind else mean_answered(own.answers) for own in checked]
    of_units = _unit_means(shares, units)
    return KindSummary(
        kind=kind,
        facts=len(stacked),
        half_life=None if np.isnan(of_units).all() else half_life(of_units, generations),
        losses=tuple(
            _with_claims(loss, kind, checked, roles) for loss in attribute_losses([stacked], roles)
        ),
        tables=tuple(_pair_tables(stacked, generations, roles)),
    )


def _with_claims(
    loss: RoleLoss, kind: str, checked: Sequence[FactAnswers], roles: Sequence[Role]
) -> RoleLoss:
    """With what the role's artifacts claim beside the facts, where all checkers list it."""
    if any(own.surplus is None or own.invented is None for own in checked):
        return loss
    columns = [place for place, role in enumerate(roles) if role == loss.role]
    right = untrue = invented = changed = 0.0
    for own in checked:
        surplus, new = own.surplus or {}, own.invented or {}
        for each in order_kinds((*own.kinds, *surplus)) if not kind else (kind,):
            answers = own.answers[[k == each for k in own.kinds]]
            before = np.column_stack([np.ones(len(answers)), answers[:, :-1]])
            lost = np.nansum(before * (1 - answers), axis=0)[columns]
            added = np.nan_to_num(new[each])[columns] if each in new else np.zeros(len(columns))
            right += float(np.nansum(answers[:, columns]))
            untrue += float(np.nansum(surplus[each][columns])) if each in surplus else 0.0
            invented += float(added.sum())
            changed += float(np.minimum(lost, added).sum())
    return replace(loss, claims=right + untrue, untrue=untrue, invented=invented, changed=changed)


def _unit_means(shares: Sequence[Array], units: Sequence[str]) -> Array:
    """(n_units, n_artifacts): samples that are not independent of each other count once."""
    by_unit: dict[str, list[Array]] = {}
    for unit, share in zip(units, shares, strict=True):
        by_unit.setdefault(unit, []).append(share)
    return np.array([mean_answered(np.array(rows)) for rows in by_unit.values()])


def _pair_tables(
    answers: Array, generations: Sequence[int], roles: Sequence[Role]
) -> list[PairTable]:
    """Of each artifact and the one that was made from it, beginning with the first."""
    pairs = []
    for place in range(0, len(generations) - 1, 2):
        first, second = answers[:, place], answers[:, place + 1]
        here, after = generations[place], generations[place + 1]
        if roles[place] == "describer":
            pairs.append(PairTable(here, after, truth_table(first, second)))
        else:
            pairs.append(PairTable(after, here, truth_table(second, first)))
    return pairs
