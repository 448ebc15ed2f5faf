"""The figures of the embedded world: real chains, played once, and drawn again with replacement.

The models are `shapes:` with knobs. Every pair of scores that the chains gave is a population with
real ties and ceilings, whose drift is known exactly; a simulated run draws its samples from it and
goes through `judge` from the scores to the verdict. There is no drift where each pair is turned
around with probability one half. The tolerance is the population's drift, or a part of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.simulated import Settings
from benchmarks.error_rates.verdicts import FAILS, PASSES, Hits, any_of_rows, judged_whole
from benchmarks.error_rates.worlds import Array
from pytest_cepbench.gate import Policy, Verdict
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
describer = "{describer}"
generator = "shapes:"
encoder = "shapes:"
vqa = "shapes:?doubt=0.1"
[metrics.gc]
[metrics.facts]
[metrics.soft_tifa_gm]
[metrics.retrieval]
[metrics.failures]
"""

_EDITS = """\
name = "edited"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples} }}
edits = ["mirror", "move", "recolor", "remove"]
[chain]
start = "image"
generations = 1
seed = {seed}
[prompts]
describe = "describe the image"
[roles]
describer = "{describer}"
[metrics.equivariance]
"""

BASELINE, CANDIDATE = "shapes:?miss=0.1", "shapes:?miss=0.14"
COLLAPSING = "shapes:?miss=0.1&collapse=0.02"
BLIND, BLINDER = "shapes:?prior=0.05", "shapes:?prior=0.15"
FAILING, FAILING_MORE = "shapes:?miss=0.1&blank=0.05", "shapes:?miss=0.1&blank=0.1"


@dataclass(frozen=True)
class Population:
    """Pairs of scores to draw from.

    before, now: (units, seeds), higher is better unless they are failures. categories: (units,)
    which category of the data set a unit is of, where a case has several of them. failures: whether
    scores are shares of failed chains. shares: whether they are right or wrong.
    Raises ValueError where nothing drifts.
    """

    name: str
    before: Array
    now: Array
    categories: npt.NDArray[np.int64] | None = None
    failures: bool = False
    shares: bool = False

    def __post_init__(self) -> None:
        if self.drift <= 0:
            raise ValueError(
                f"{self.name}: the candidate is no worse ({self.drift:+.4f}) on these samples; "
                "play more of them"
            )

    @property
    def drift(self) -> float:
        """The mean drop, of all categories alike."""
        drop = self.before.mean() - self.now.mean()
        return float(-drop if self.failures else drop)

    def drawn(self, generator: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Units of one case, about n of them: as many of each category where there are several."""
        if self.categories is None:
            return generator.integers(len(self.before), size=n)
        parts = [np.flatnonzero(self.categories == c) for c in np.unique(self.categories)]
        return np.concatenate([generator.choice(part, n // len(parts)) for part in parts])

    def verdict(
        self, generator: np.random.Generator, n: int, policy: Policy, *, drifts: bool
    ) -> Verdict:
        """Of one case with n units that are drawn now."""
        units = self.drawn(generator, n)
        before, now = self.before[units], self.now[units]
        if not drifts:
            turned = generator.random((len(units), 1)) < 0.5
            before, now = np.where(turned, now, before), np.where(turned, before, now)
        labels = None if self.categories is None else self.categories[units]
        return judged_whole(
            before, now, policy, categories=labels, failures=self.failures, shares=self.shares
        )


def populations(samples: int) -> list[Population]:
    """Play the chains. samples: of each of the world's eight categories."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as store:

        def scores(describer: str, seed: int, metric: str = "gc") -> dict[str, dict[str, float]]:
            return _scores(Path(folder), store, samples, describer, seed, metric)

        before = [_flat(scores(BASELINE, seed)) for seed in (0, 1, 2)]
        now = [_flat(scores(CANDIDATE, seed)) for seed in (3, 4, 5)]
        same_draws = _flat(scores(CANDIDATE, 0))
        (facts, fewer_facts), (asked, asked_less) = (
            [
                _flat(scores(describer, seed, metric))[:, None]
                for describer, seed in ((BASELINE, 0), (CANDIDATE, 3))
            ]
            for metric in ("facts", "soft_tifa_gm")
        )
        found = _flat(scores(BASELINE, 0, "retrieval"))[:, None]
        found_less = _flat(scores(COLLAPSING, 3, "retrieval"))[:, None]
        failing = _flat(scores(FAILING, 0, "failures"))[:, None]
        failing_more = _flat(scores(FAILING_MORE, 1, "failures"))[:, None]
        categories = np.repeat(np.arange(len(before[0]) // samples), samples)
        seen, unseen = (
            _scores(Path(folder), store, samples, describer, seed, "equivariance", text=_EDITS)
            for describer, seed in ((BLIND, 0), (BLINDER, 1))
        )
    old, new = (np.column_stack(parts) for parts in (before, now))
    return [
        Population("embedded GC@3", old[:, :1], new[:, :1]),
        Population("embedded GC@3, same draws", old[:, :1], same_draws[:, None]),
        Population("embedded GC@3, 3 seeds", old, new),
        Population("embedded GC@3, 8 categories", old[:, :1], new[:, :1], categories),
        Population("embedded facts F1", facts, fewer_facts),
        Population("embedded Soft-TIFA GM", asked, asked_less),
        Population("embedded equivariance, one edit", _of_edit(seen), _of_edit(unseen)),
        Population("embedded equivariance, 4 edits", _by_start(seen), _by_start(unseen)),
        Population("embedded retrieval@3", found, found_less, shares=True),
        Population("embedded failures", failing, failing_more, failures=True),
    ]


def _flat(scores: dict[str, dict[str, float]]) -> Array:
    """All scores, category by category, samples in the order of their names."""
    return np.array([part[name] for _, part in sorted(scores.items()) for name in sorted(part)])


def _of_edit(scores: dict[str, dict[str, float]]) -> Array:
    """(units, 1) the scores of recolored scenes, in the order of their names."""
    own = scores["recolor"]
    return np.array([[own[name]] for name in sorted(own)])


def _by_start(scores: dict[str, dict[str, float]]) -> Array:
    """(units, edits) the scores of the starts that take all edits, which share what they are of."""
    by_start = [
        {name.removesuffix(f" {edit}"): score for name, score in own.items()}
        for edit, own in sorted(scores.items())
    ]
    whole = set.intersection(*(set(own) for own in by_start))
    return np.array([[own[start] for own in by_start] for start in sorted(whole)])


def _scores(
    folder: Path,
    store: Store,
    samples: int,
    describer: str,
    seed: int,
    metric: str,
    text: str = _SUITE,
) -> dict[str, dict[str, float]]:
    run = staged_run(folder, store, samples, describer, seed, text)
    (case,) = (
        case
        for case in list_cases(run.measures, run.suite.name, run.dataset, run.suite.table.groups)
        if (case.key.part, case.key.metric) == ("overall", metric)
    )
    return {name: dict(part) for name, part in run.measure(case).scores.items()}


def staged_run(
    folder: Path, store: Store, samples: int, describer: str, seed: int, text: str = _SUITE
) -> ChainRun:
    """Chains of the embedded world by a describer, to be measured. text: of their suite."""
    path = folder / "suite.toml"
    path.write_text(text.format(samples=samples, seed=seed, describer=describer), encoding="utf-8")
    suite = load_suite(path)
    assignments, measures = assign_models(suite, RoleChoices())
    return ChainRun(suite, load_data(suite, {}), assignments, measures, ModelPool(store))


_LARGE = 200  # beyond it the whole gate takes long: detection is left out there


def figures(population: Population, n: int, m: int, settings: Settings) -> Iterator[Figure]:
    """Promises of runs of m cases and of one case, and detection, of one population at one n."""
    drift = population.drift
    generator = np.random.default_rng([settings.seed, *map(ord, population.name), n])
    units = len(population.drawn(generator, n))

    def play(cell: Cell, wanted: set[Verdict]) -> Hits:
        policy = Policy(tolerance=cell.tolerance, alpha=settings.alpha / cell.cases)
        hits = [
            population.verdict(generator, n, policy, drifts=cell.drift > 0) in wanted
            for _ in range(_runs(settings, cell.cases) * cell.cases)
        ]
        return any_of_rows(np.array(hits).reshape(-1, cell.cases))

    for cases in sorted({1, m}):
        still = Cell("regression", population.name, units, cases, 0.0, 0.0)
        yield still.rate("false failures", play(still, FAILS), settings.alpha)
        at = Cell("noninferiority", population.name, units, cases, drift, drift)
        yield at.rate("false passes", play(at, PASSES), settings.alpha)
    for times in (2, 4) if n <= _LARGE else ():
        cell = Cell("regression", population.name, units, 1, drift, drift / times)
        yield cell.rate("detected", play(cell, FAILS))
        plain = replace(cell, rule="paired threshold")
        yield plain.rate("detected", _by_threshold(population, n, plain, settings, generator))
    plain = Cell("paired threshold", population.name, units, 1, 0.0, drift / 2)
    yield plain.rate("false failures", _by_threshold(population, n, plain, settings, generator))


def _runs(settings: Settings, cases: int) -> int:
    """Runs of many cases go through the whole gate for each: a quarter of them take long enough."""
    return settings.runs if cases == 1 else max(2, settings.runs // 4)


def _by_threshold(
    population: Population,
    n: int,
    cell: Cell,
    settings: Settings,
    generator: np.random.Generator,
) -> Hits:
    """Whether the rule of design 4 without statistics fails, over runs of one case."""
    policy = Policy(gate="threshold", tolerance=cell.tolerance)
    drifts = cell.drift > 0
    verdicts = [
        population.verdict(generator, n, policy, drifts=drifts) for _ in range(settings.runs)
    ]
    return np.array([verdict in FAILS for verdict in verdicts])
