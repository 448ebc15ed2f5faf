r"""How often the verdicts of a battle case err: all samples at once, and looks.

    OMP_NUM_THREADS=1 python -m benchmarks.arena            # 30 minutes of CPU
    OMP_NUM_THREADS=1 python -m benchmarks.arena --quick    # under a minute of CPU

Battles are simulated (judges that agree with people at .62 to .95, order effects of 0 to .9 logits,
ties of 0 to 60 %), and go through the gate's own bounds and looks. A promise is broken where
a rate exceeds it by more than 3 standard errors: it is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.error_rates.report import Promises
from benchmarks.pages import table
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.statistics import (
    Differences,
    look_shares,
    look_sizes,
    mean_bounds,
)

Array = npt.NDArray[np.float64]

Design = Literal["both", "balanced", "adaptive"]

DESIGNS: tuple[Design, ...] = ("both", "balanced", "adaptive")


@dataclass(frozen=True)
class JudgeWorld:
    """Battles that people would give to one side each, and a judge who errs.

    accuracy: share of decided verdicts that agree with people, of a judge without order effect.
    order_effect: logits by which the judge favours the first answer.
    ties: share of verdicts that are ties, whatever people say.
    design: which orders are asked.
    """

    accuracy: float
    order_effect: float
    ties: float
    design: Design

    def __str__(self) -> str:
        return (
            f"{self.design}, accuracy {self.accuracy:g}, order effect {self.order_effect:g}, "
            f"ties {self.ties:g}"
        )

    @property
    def sees(self) -> float:
        """Share of a drop of people's win rate that the judged win rate shows."""
        strength = log(self.accuracy / (1 - self.accuracy))
        right = [1 / (1 + exp(-strength - side * self.order_effect)) for side in (1, -1)]
        shown = (1 - self.ties) * (sum(right) - 1)
        # Half of the mean after a first tie is the second verdict.
        return shown * (1 + self.ties / 2) if self.design == "adaptive" else shown

    def draw(
        self, generator: np.random.Generator, shape: tuple[int, int], wins: float, *, equal: bool
    ) -> Array:
        """(runs, n) scores of the candidate.

        wins: share of the battles that people would give to it.
        equal: whether the answers of each sample are exchanged with probability one half, so that
        candidate and accepted model are the same but for chance.
        """
        better = generator.random(shape) < wins
        if equal:
            better ^= generator.random(shape) < 0.5
        candidate_first = generator.random(shape) < 0.5
        score, tied = self._verdict(generator, better, candidate_first)
        if self.design == "balanced":
            return score
        other, _ = self._verdict(generator, better, ~candidate_first)
        mean = (score + other) / 2
        return mean if self.design == "both" else np.where(tied, mean, score)

    def _verdict(
        self,
        generator: np.random.Generator,
        better: npt.NDArray[np.bool_],
        candidate_first: npt.NDArray[np.bool_],
    ) -> tuple[Array, npt.NDArray[np.bool_]]:
        """The candidate's scores in one order, and which of them are ties."""
        strength = log(self.accuracy / (1 - self.accuracy))
        logits = np.where(better, strength, -strength)
        logits += np.where(candidate_first, self.order_effect, -self.order_effect)
        won = generator.random(better.shape) < 1 / (1 + np.exp(-logits))
        tied = generator.random(better.shape) < self.ties
        return np.where(tied, 0.5, won.astype(np.float64)), tied


def worlds(*, quick: bool) -> Iterator[JudgeWorld]:
    """Judges from .62 to .95, order effects from 0 to .9 logits, ties from 0 to 60 %."""
    for accuracy in (0.62, 0.95) if quick else (0.62, 0.71, 0.82, 0.95):
        for effect in (0.0, 0.9) if quick else (0.0, 0.45, 0.9):
            for ties in (0.0, 0.6) if quick else (0.0, 0.3, 0.6):
                for design in DESIGNS:
                    yield JudgeWorld(accuracy, effect, ties, design)


EVEN = 0.5

RULES = ("once", "looks")
"""All samples at once; bounds at 25, 50, 100, ..."""


@dataclass(frozen=True)
class RateSettings:
    """How much is simulated.

    samples: of a run. runs: of each world.
    alpha: in each direction. tolerance: of the judged win rate, less where a judge cannot show it.
    """

    samples: int = 600
    runs: int = 300
    alpha: float = 0.05
    tolerance: float = 0.05
    seed: int = 0


QUICK_RATES = RateSettings(samples=300, runs=40)


Rates = Mapping[tuple[str, str], float]
"""Of one world: by rule and column of the table."""


def rates(world: JudgeWorld, settings: RateSettings, promises: Promises) -> Rates:
    """False failures of equal models, false passes at the tolerance, decisions and samples.

    Equal models are drawn with a drop and then exchanged at random. The tolerance is the drop that
    the judge shows: the setting's, or what is shown where each battle is lost.
    """
    tolerance = min(settings.tolerance, world.sees / 2)
    wins = EVEN - tolerance / world.sees
    name = [ord(letter) for letter in str(world)]
    found: dict[tuple[str, str], float] = {}
    for equal in (True, False):
        generator = np.random.default_rng([settings.seed, *name, equal])
        shape = settings.runs, settings.samples
        scores = world.draw(generator, shape, wins, equal=equal)
        for rule in RULES:
            ends = _ends(scores, tolerance, settings, rule)
            wrong = {"regressed": ends.regressed} if equal else {"held": ends.held}
            for what, hits in wrong.items():
                drift = 0.0 if equal else tolerance
                promises.percent(f"{what} by {rule}, {world}, {drift=:g}", hits, settings.alpha)
            if equal:
                found[rule, "false failures"] = float(ends.regressed.mean())
                found[rule, "held if equal"] = float(ends.held.mean())
                found[rule, "samples if equal"] = float(ends.counts.mean())
            else:
                found[rule, "false passes"] = float(ends.held.mean())
    return found


@dataclass(frozen=True)
class _Ends:
    held: npt.NDArray[np.bool_]
    regressed: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.int64]


def _ends(scores: Array, tolerance: float, settings: RateSettings, rule: str) -> _Ends:
    n = scores.shape[1]
    sizes = (n,) if rule == "once" else look_sizes(n)
    looks = list(zip(sizes, look_shares(len(sizes)), strict=True))
    verdicts, counts = [], []
    for run in scores:
        for size, share in looks:
            verdict = verdict_by_bounds(run[:size], tolerance, settings.alpha * share)
            if verdict is not Verdict.INCONCLUSIVE:
                break
        verdicts.append(verdict)
        counts.append(size)
    held = [verdict in (Verdict.HELD, Verdict.IMPROVED) for verdict in verdicts]
    regressed = [verdict is Verdict.REGRESSED for verdict in verdicts]
    return _Ends(np.array(held), np.array(regressed), np.array(counts))


def verdict_by_bounds(scores: Array, tolerance: float, alpha: float) -> Verdict:
    """The gate's verdict on the scores of one run's battles. scores: (n,)."""
    n = len(scores)
    differences = Differences(scores - EVEN, np.zeros(n, np.int64), np.arange(n))
    bounds = mean_bounds(differences, alpha, span=EVEN)
    return verdict_of(bounds, tolerance)


def rates_table(found: Mapping[JudgeWorld, Rates]) -> str:
    """A row for each design and rule: means over the worlds, of errors the worst as well."""
    rows = []
    for design in DESIGNS:
        for rule in RULES:
            cells = []
            for title in ("false failures", "false passes", "held if equal", "samples if equal"):
                own = [rates[rule, title] for w, rates in found.items() if w.design == design]
                mean = fmean(own)
                cells.append(f"{mean:.0f}" if title.startswith("samples") else f"{mean:.1%}")
                if title.startswith("false"):
                    cells.append(f"{max(own):.1%}")
            rows.append([design, rule, *cells])
    return table(
        ("orders", "rule", "false failures", "worst", "false passes", "worst", "held if equal",
         "samples if equal"), rows,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print: 0 if every promise was kept, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few runs, few worlds")
    quick = parser.parse_args(arguments).quick
    settings = QUICK_RATES if quick else RateSettings()
    promises = Promises()
    print(rates_table({world: rates(world, settings, promises) for world in worlds(quick=quick)}))
    print(f"{promises.measured} promises measured, {len(promises.broken)} broken")
    for sentence in promises.broken:
        print(f"broken: {sentence}", file=sys.stderr)
    return 1 if promises.broken else 0


if __name__ == "__main__":
    sys.exit(main())
