"""A suite made ready to be measured: its samples, the models of its roles, its metrics and cases.

Gate, studies, calibration and doctor all begin here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import SpecError
from pytest_cepbench.measures.cases import Case, PooledCase
from pytest_cepbench.measures.measure_registry import list_cases
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import Suite, load_suite
from pytest_cepbench.suites.gate_config import check_names, pooled_case
from pytest_cepbench.suites.model_pool import ModelPool
from pytest_cepbench.suites.role_assignment import (
    Assignments,
    RoleChoices,
    assign_models,
)
from pytest_cepbench.suites.suite_run import SuiteRun


@dataclass(frozen=True)
class PreparedSuite:
    """A suite that can be measured; no model is bound or loaded yet.

    suite: its settings.
    dataset: its samples, each as often as it has seeds.
    assignments: the models of its roles.
    measures: its metrics by name, in the order of its file.
    cases: all that have scores, the same list in every process.
    """

    suite: Suite
    dataset: Dataset
    assignments: Assignments
    measures: Mapping[str, Any]
    cases: tuple[Case, ...]

    @cached_property
    def pooled(self) -> PooledCase | None:
        """The verdict of the suite as a whole, where it wants one."""
        return pooled_case(self.suite, self.cases)

    def run(self, model_pool: ModelPool, baselines: Path | None = None) -> SuiteRun:
        """The measuring of the suite by the models of a pool.

        baselines: folder of accepted baselines, which answers battle.
        """
        parts = (self.suite, self.dataset, self.assignments, self.measures, model_pool)
        if self.suite.answer_plan is None:
            return ChainRun(*parts)
        from pytest_cepbench.suites.answer_run import AnswerRun

        return AnswerRun(*parts, baselines=baselines)

    def under_seeds(self, count: int) -> tuple[PreparedSuite, ...]:
        """The suite of chains under so many seeds: its own first, then those that follow it."""
        table = self.suite.table
        seeded = []
        for seed in range(table.chain.seed, table.chain.seed + count):
            chain = msgspec.structs.replace(table.chain, seed=seed)
            own = msgspec.structs.replace(table, chain=chain)
            seeded.append(replace(self, suite=msgspec.structs.replace(self.suite, table=own)))
        return tuple(seeded)


def prepare_suite(suite: Suite, dataset: Dataset, choices: RoleChoices) -> PreparedSuite:
    """Assign a model to every role of a suite, and list its cases.

    Raises what `assign_models` and `list_cases` raise.
    """
    assignments, measures = assign_models(suite, choices)
    cases = tuple(list_cases(measures, suite.name, dataset, suite.table.groups))
    return PreparedSuite(suite, dataset, assignments, measures, cases)


def load_prepared_suite(
    path: Path,
    choices: RoleChoices,
    data: Mapping[str, DataPlace],
    samples: int | None = None,
    seeds: int | None = None,
    run_folder: Path | None = None,
) -> PreparedSuite:
    """Read a suite's file and its data set, and prepare it.

    path: the suite's file.
    choices: the models that the user named.
    data: data set name -> path or URL.
    samples: most of each category; all where None.
    seeds: how often each sample is measured, each time with seeds of its own; as the suite says
    where None.
    run_folder: where processes of the run keep the commits that they read; None for one process.
    Raises what `load_suite`, `load_data`, `prepare_suite` and `check_names` raise, and SpecError
    for several seeds of chains that were made elsewhere.
    """
    suite = load_suite(path)
    # Before the roles: where the data is not here, no model needs to be named.
    dataset = load_data(suite, data, samples, run_folder)
    times = suite.seeds if seeds is None else seeds
    prepared = prepare_suite(suite, dataset.repeated(times), choices)
    if times > 1 and choices.replay is not None:
        raise SpecError(
            f"{choices.replay} brings its chains with it, one of each sample: suite {suite.name!r} "
            f"cannot be measured with {times} seeds; take --cep-seeds=1"
        )
    check_names(suite, prepared.cases)
    return prepared
