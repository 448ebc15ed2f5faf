"""How much the luck of a baseline counts, measured once or several times.

Scores are simulated; test, bounds and verdicts are the gate's own. All standard deviations are of
the difference between two measurements, so each of the two has 1 / sqrt(2) of them. A drop of 0.01
is tolerated; alpha is 0.05, divided by the number of cases.

    OMP_NUM_THREADS=1 python benchmarks/baseline_luck.py           # 5 minutes, one core
    OMP_NUM_THREADS=1 python benchmarks/baseline_luck.py --quick   # seconds

Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.statistics import Differences, MeasurementSpread, mean_bounds
from pytest_cepbench.gate.verdict import Verdict

Array = npt.NDArray[np.float64]

TOLERANCE, ALPHA = 0.01, 0.05
NOISE = 0.05
DROPS = (0.0, 0.01, 0.02, 0.04)
SEEDS = (1, 2, 3, 5, 10)


def measurements(
    rng: np.random.Generator, count: int, categories: int, units: int, effect: float
) -> Array:
    """(count, categories, units) scores of one model, less what each unit scores on average."""
    noise = rng.normal(0, NOISE / sqrt(2), (count, categories, units))
    return noise + rng.normal(0, effect / sqrt(2), (count, categories, 1))


def verdict(baselines: Array, candidate: Array, alpha: float) -> Verdict:
    """Of a candidate against the mean of (K, C, n) measurements of the accepted model."""
    count, categories, units = baselines.shape
    labels = np.repeat(np.arange(categories), units)
    values = (candidate - baselines.mean(0)).ravel()
    bounds = mean_bounds(Differences(values, labels, np.arange(values.size)), alpha)
    if count > 1:
        deviations = baselines.mean(2).std(0, ddof=1).tolist()
        bounds = MeasurementSpread.of(deviations, count).widened(bounds, 1.0)
    return verdict_of(bounds, TOLERANCE)


def lucky(*, quick: bool) -> Iterator[str]:
    """Equal checkpoints against many baselines of 60 units: how often each baseline fails them."""
    rng = np.random.default_rng(1)
    runs, candidates = (60, 60) if quick else (500, 200)
    yield "| measurements | on average | one baseline in ten, at least | one in fifty, at least |"
    yield "|---|---|---|---|"
    for count in (1, 5, 10):
        rates = []
        for _ in range(runs):
            own = measurements(rng, count, 1, 60, 0.0)
            fresh = measurements(rng, candidates, 1, 60, 0.0)
            failed = [verdict(own, scores, ALPHA) is Verdict.REGRESSED for scores in fresh]
            rates.append(100 * float(np.mean(failed)))
        tenth, fiftieth = np.quantile(rates, [0.9, 0.98])
        yield f"| {count} | {np.mean(rates):.1f} | {tenth:.0f} | {fiftieth:.0f} |"


def effects(effect: float, *, quick: bool) -> Iterator[str]:
    """Four categories of 48 that move as a whole: equal checkpoints, and drops.

    Of several cases, taken for independent, a run fails where one does; a drop is one case's.
    """
    rng = np.random.default_rng(2)
    yield (
        "| cases | measurements | equal runs that fail | drop of 0.02 fails | of 0.04 fails "
        "| equal held | drop of 0.01 held |"
    )
    yield "|---|---|---|---|---|---|---|"
    for cases in (1, 14):
        for count in SEEDS:
            found = {}
            for drop in DROPS:
                runs = 60 if quick else 500 if drop else 2500
                verdicts = [
                    verdict(
                        measurements(rng, count, 4, 48, effect),
                        measurements(rng, 1, 4, 48, effect)[0] - drop,
                        ALPHA / cases,
                    )
                    for _ in range(runs)
                ]
                found[drop] = {
                    one: verdicts.count(one) / runs for one in (Verdict.REGRESSED, Verdict.HELD)
                }
            failing = 1 - (1 - found[0.0][Verdict.REGRESSED]) ** cases
            failed = [failing, *(found[drop][Verdict.REGRESSED] for drop in (0.02, 0.04))]
            held = [found[drop][Verdict.HELD] for drop in (0.0, 0.01)]
            cells = " | ".join(f"{100 * share:.0f}" for share in (*failed, *held))
            yield f"| {cases} | {count} | {cells} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few runs, to see that it works")
    quick = parser.parse_args().quick
    print("\n".join(lucky(quick=quick)), "\nCategories move as a whole, sd 0.02:\n", sep="\n")
    print("\n".join(effects(0.02, quick=quick)), "\nThey do not:\n", sep="\n")
    print("\n".join(effects(0.0, quick=quick)))


if __name__ == "__main__":
    main()
