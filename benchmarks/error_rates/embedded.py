"""Real chains of the embedded world: played once, and drawn again with replacement.

Every pair of scores that two rule-based describers of a known loss gave is one to draw from, with
its ties and ceilings. The drift is that of all pairs, and so is the tolerance; without drift each
pair is turned around with probability one half.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.error_rates.worlds import Array, Draw, Generator, Layout, World, one_category
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)

SOFT_TIFA = "Soft-TIFA GM"

_SUITE = """\
name = "embedded"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples} }}
questions = "metadata"
[chain]
start = "image"
iterations = 3
seed = {seed}
[prompts]
describe = "describe the image"
[roles]
describer = "shapes:?miss={miss}"
generator = "shapes:"
encoder = "shapes:"
vqa = "shapes:?doubt=0.1"
[metrics.gc]
[metrics.facts]
[metrics.soft_tifa_gm]
"""

_METRICS = {"gc": "GC@3", "facts": "facts F1", "soft_tifa_gm": SOFT_TIFA}


def played(samples: int) -> Iterator[World]:
    """Worlds of each metric. samples: of each of the world's eight categories.

    Raises ValueError where nothing drifts.
    """
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as store:
        before = _scores(Path(folder), store, samples, 0.1, 0)
        now = _scores(Path(folder), store, samples, 0.14, 3)
        alike = _scores(Path(folder), store, samples, 0.14, 0)
    for metric, name in _METRICS.items():
        yield _world(name, now[metric] - before[metric])
    yield _world("GC@3, same draws", alike["gc"] - before["gc"])


def _world(name: str, pairs: Array) -> World:
    """Drawn from differences of all samples, (n,)."""
    drift = -float(pairs.mean())
    if drift <= 0:
        raise ValueError(f"{name}: the candidate is no worse ({drift:+.4f}); play more samples")
    return World(f"embedded {name}", _draw(pairs), one_category, tolerance=round(drift, 6))


def _draw(pairs: Array) -> Draw:
    def draw(generator: Generator, runs: int, layout: Layout, drift: float) -> Array:
        own = generator.choice(pairs, (runs, len(layout.clusters)))
        turned = generator.choice([-1.0, 1.0], own.shape) if drift == 0 else 1.0
        return np.asarray(own * turned)

    return draw


def _scores(folder: Path, store: Store, samples: int, miss: float, seed: int) -> dict[str, Array]:
    """Metric -> scores of all samples, in the order of their names."""
    path = folder / "suite.toml"
    path.write_text(_SUITE.format(samples=samples, seed=seed, miss=miss), encoding="utf-8")
    suite = load_suite(path)
    assignments, measures = assign_models(suite, RoleChoices())
    run = ChainRun(suite, load_data(suite, {}), assignments, measures, ModelPool(store))
    scores = {
        case.key.metric: run.measure(case).scores
        for case in list_cases(run.measures, suite.name, run.dataset, suite.table.groups)
        if case.key.part == "overall"
    }
    return {
        metric: np.array([own[name] for _, own in sorted(parts.items()) for name in sorted(own)])
        for metric, parts in scores.items()
    }
