"""Soft-TIFA: how far a picture or text shows what questions about it ask for, and its controls.

Kamath et al., "GenEval 2: Addressing Benchmark Drift in Text-to-Image Evaluation" (arXiv
2512.16853), section 4. A model that answers questions (VQA) is asked one question for each atom of
a prompt; an atom's score is the probability that it gives the right answer. TIFA (Hu et al., 2023)
is the same with answers that are right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

MeanName = Literal["geometric", "arithmetic"]

HALF = 0.5
"""An answer less likely than this is not the model's answer: another one, or all others together,
are likelier."""

FEW = 10
"""Control questions too few for a share of them to tell much."""


def soft_tifa(probabilities: npt.ArrayLike, mean: MeanName = "geometric") -> float:
    """The score of one picture or text.

    probabilities: (atoms,) of the right answers, in [0, 1], at least one.
    mean: "geometric" for Soft-TIFA_GM, an estimate of whether the whole prompt is met: one atom of
        probability 0 makes it 0. "arithmetic" for Soft-TIFA_AM, the share of atoms that are met.
    Returns a number in [0, 1]; higher is better. The geometric mean is at most the arithmetic one.
    Chance level: p for a model that gives each right answer the probability p, whatever it is
    shown. Source: GenEval 2, section 4.
    Raises ValueError for no atom, and for a number outside [0, 1].
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"the probabilities of at least one answer are expected, got shape {values.shape}"
        )
    if not ((values >= 0) & (values <= 1)).all():  # also where one is NaN
        raise ValueError(f"probabilities in [0, 1] are expected, got {values.tolist()!r:.80}")
    if mean == "arithmetic":
        return float(values.mean())
    if not values.all():
        return 0.0
    return float(min(1.0, np.exp(np.log(values).mean())))


def fail_descendants(
    probabilities: Sequence[float], parents: Sequence[Sequence[int]]
) -> tuple[float, ...]:
    """The probabilities, 0 for each atom that has a failed atom among its ancestors.

    parents: of each atom the places of those that it depends on, all before its own. An atom has
    failed where its probability is below one half, or an ancestor has failed: the color of a dog
    that is not there is no atom that is met.
    Source: the dependencies of DSG (Cho et al., 2024, section 3) and of Arena-T2I Hard.
    Raises ValueError where a parent does not stand before its child.
    """
    kept: list[float] = []
    for place, (probability, own) in enumerate(zip(probabilities, parents, strict=True)):
        if any(not 0 <= parent < place for parent in own):
            raise ValueError(
                f"atom {place} depends on {list(own)}: places before its own are expected"
            )
        kept.append(0.0 if any(kept[parent] < HALF for parent in own) else probability)
    return tuple(kept)


def means_by_kind(
    kinds: Sequence[str], probabilities: Sequence[float]
) -> Mapping[str, tuple[float, int]]:
    """Soft-TIFA_AM and the number of atoms of each kind, in order of their names.

    Source: GenEval 2's analysis per skill.
    """
    values: dict[str, list[float]] = {}
    for kind, probability in zip(kinds, probabilities, strict=True):
        values.setdefault(kind, []).append(probability)
    return {kind: (float(np.mean(own)), len(own)) for kind, own in sorted(values.items())}


@dataclass(frozen=True)
class ControlAccuracy:
    """How a VQA model answers questions whose answers are known.

    present: (right answers, questions) about what a chain's start is known to show or say.
    absent: the same of questions about what other samples show and this one does not name, whose
        answer is no.
    """

    present: tuple[int, int]
    absent: tuple[int, int]

    @classmethod
    def of(cls, present: Sequence[float], absent: Sequence[float]) -> ControlAccuracy:
        """From the probabilities of the right answers; one of over one half is right.

        Not one half itself: who gives it to every answer would have all of them right.
        """
        return cls(*((sum(p > HALF for p in own), len(own)) for own in (present, absent)))

    @property
    def flawless(self) -> bool:
        """Whether all questions were answered rightly, and some were asked of what is absent."""
        return self.absent[1] > 0 and all(right == asked for right, asked in vars(self).values())

    def below(self, least: float) -> bool:
        """Whether one of the two shares is below a limit; of fewer than `FEW` questions, whether
        none of them was answered rightly, since chance decides most of so small a share.

        A model that says yes to all has 0 of the absent, one that says no to all 0 of the present,
        and one that tosses a coin one half of both. A share of no questions is not below anything.
        """
        return any(
            right == 0 if count < FEW else right < least * count
            for right, count in (self.present, self.absent)
            if count
        )

    def __str__(self) -> str:
        parts = []
        for name, (right, count) in (("present", self.present), ("absent", self.absent)):
            if count:
                parts.append(f"{right:,} of {count:,} about what is {name} ({right / count:.1%})")
        return " and ".join(parts) or "none"
