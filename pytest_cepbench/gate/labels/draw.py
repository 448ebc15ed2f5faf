"""The draw of battles that people label.

Which battles are drawn follows from the digests of all questions and answers, and from how many are
wanted. There is no seed to choose: who knows the verdicts cannot draw battles that suit them, and
whoever has the same answers can draw again and see that nothing was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate.statistics.prediction_powered import LEAST_IN_CATEGORY

_ORDER = "labels/1"
"""Version of the order; another one draws other battles."""


class Battle(NamedTuple):
    """Digests of a question, of the candidate's answer, and of the one that it battles.

    Those of the pieces in their order, as judges and people see them; empty for a missing answer.
    """

    question: str
    candidate: str
    opponent: str

    @property
    def decided(self) -> bool:
        """True where its score is known without a judge: answers are equal, or one is missing."""
        return self.candidate == self.opponent or not (self.candidate and self.opponent)


@dataclass(frozen=True)
class Contestant:
    """A battle with what it is drawn by.

    category: the first of its sample.
    unit: what its sample shares with others, which are drawn with it.
    """

    battle: Battle
    sample: str
    category: str
    unit: str


def population_digest(battles: Iterable[Contestant]) -> str:
    """Digest of all battles, in any order."""
    return digest_json(sorted([own.sample, own.category, own.unit, *own.battle] for own in battles))


def draw_battles(battles: Sequence[Contestant], count: int) -> dict[str, float]:
    """The drawn samples, with the probability with which each was drawn.

    count: units to draw. They are dealt to the categories by their sizes, at least two to each, and
    within one all are as likely: those whose digests come first.
    Raises SpecError where there are fewer, or too few for two of every category.
    """
    population = population_digest(battles)
    units: dict[str, dict[str, list[str]]] = {}
    for own in battles:
        units.setdefault(own.category, {}).setdefault(own.unit, []).append(own.sample)
    quotas = _quotas({name: len(part) for name, part in units.items()}, count)
    drawn: dict[str, float] = {}
    for name, part in units.items():
        ranked = sorted(part, key=lambda unit: digest_text(f"{_ORDER} {population} {unit}"))
        probability = round(quotas[name] / len(part), 9)
        for unit in ranked[: quotas[name]]:
            drawn |= dict.fromkeys(part[unit], probability)
    return dict(sorted(drawn.items()))


def _quotas(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of each category, by largest remainders."""
    whole = sum(sizes.values())
    least = {name: min(LEAST_IN_CATEGORY, size) for name, size in sizes.items()}
    if count > whole:
        raise SpecError(
            f"{count} battles are to be drawn, and there are {whole}: give at most as many"
        )
    if count < sum(least.values()):
        raise SpecError(
            f"{count} battles are to be drawn, and each of {len(sizes)} categories needs "
            f"{LEAST_IN_CATEGORY} to show its spread: give at least {sum(least.values())}"
        )
    quotas = {name: max(least[name], count * size // whole) for name, size in sizes.items()}
    spare = {name: count * size / whole - quotas[name] for name, size in sizes.items()}
    while (rest := count - sum(quotas.values())) != 0:
        step = 1 if rest > 0 else -1
        open_to = [
            name for name in sorted(sizes) if least[name] <= quotas[name] + step <= sizes[name]
        ]
        chosen = max(open_to, key=lambda name: step * spare[name])
        quotas[chosen] += step
        spare[chosen] -= step
    return quotas
