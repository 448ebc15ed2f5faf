"""The embedded default: the metrics put its training in order."""

from __future__ import annotations

from pathlib import Path

import pytest

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
from tests.reference.shipped import ROOT, copy_suite

pytestmark = [pytest.mark.models, pytest.mark.slow]

CHECKPOINTS = ROOT / "reference" / "checkpoints"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the default with its baselines and checkpoints, for all tests with one store."""
    pytest.importorskip("diffusers", reason="the reference models need the [models] extra")
    return copy_suite("shapes", tmp_path_factory.mktemp("default"))


DRIFT = """\
name = "short"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 8, seed = 1 }
[chain]
start = "both"
generations = 2
[prompts]
describe = "describe the image"
[metrics.mcd]
"""
"""The chains of the drift suite, but short."""


def values(file: Path, pool: ModelPool, step: int) -> dict[str, float]:
    """What a suite says of the describer of a training step, over all of few scenes, by metric."""
    suite = load_suite(file)
    describer = f"{CHECKPOINTS / f'describer-step{step}'}?dtype=float32"
    assignments, measures = assign_models(suite, RoleChoices(roles={"describer": describer}))
    dataset = load_data(suite, {}, 1)
    run = ChainRun(suite, dataset, assignments, measures, pool)
    return {
        case.key.metric: run.measure(case).value
        for case in list_cases(measures, suite.name, dataset, suite.table.groups)
        if case.key.part == "overall" and case.key.metric in ("gc", "sim", "mcd")
    }


@pytest.mark.slow
def test_the_metrics_put_the_training_in_order(place: Path) -> None:
    """GC@3, SIM and MCD rise from a barely speaking describer, over a middling one, to the best."""
    long = place / "suites" / "shapes" / "suite.toml"
    text = long.read_text()
    short = long.with_name("short.toml")
    short.write_text(f"{DRIFT}{text[text.index('[roles]') : text.index('[metrics.gc]')]}")
    by_metric: dict[str, list[float]] = {}
    with Store(place / ".cepbench" / "store") as store:
        pool = ModelPool(store, threads=1)
        for step in (200, 600, 2000):
            for file in (long, short):
                for metric, value in values(file, pool, step).items():
                    by_metric.setdefault(metric, []).append(value)
    assert sorted(by_metric) == ["gc", "mcd", "sim"]
    for metric, series in by_metric.items():
        assert series == sorted(series), metric
        assert series[-1] - series[0] > 0.1, metric
