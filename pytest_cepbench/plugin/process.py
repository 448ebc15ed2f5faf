"""What one process (the only one, or an xdist worker) holds while it judges cases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import pytest

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.conventions import keep_out_of_git
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate import CaseKey, Policy
from pytest_cepbench.gate.policy import GateName
from pytest_cepbench.models.roles import Model, RoleName
from pytest_cepbench.plugin.settings import Settings
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    Case,
    Lineup,
    RoleChoices,
    Roster,
    Suite,
    SuiteRun,
    cast_suite,
    list_cases,
    load_data,
    load_suite,
    named_seat,
)
from pytest_cepbench.suites.cases import PooledCase
from pytest_cepbench.suites.measures import Measure
from pytest_cepbench.suites.policies import Claim, Overrides, check_names, claim_of, pooled_case


@dataclass(frozen=True)
class LoadedSuite:
    """A suite with its data set, the roles chosen for it, its metrics and its cases.

    pooled: the verdict of all of it, where it wants one.
    """

    suite: Suite
    dataset: Dataset
    lineup: Lineup
    measures: Mapping[str, Measure]
    cases: tuple[Case, ...]
    pooled: PooledCase | None


@dataclass(frozen=True)
class Assigned:
    """A case of this run, and how it is judged, its share of alpha included."""

    suite_file: Path
    case: Case
    policy: Policy


class Process:
    """Suites, store and models of this process; everything is made when it is first needed.

    run_id: shared by all processes of a run. started: when that began, in seconds since the epoch.
    workers: how many of them share this machine. assigned: node id -> how the case is judged, of
    every case that was collected; known when collection ends.
    """

    def __init__(self, settings: Settings, run_id: str, started: float, workers: int = 1) -> None:
        self.settings = settings
        self.run_id = run_id
        self.started = started
        self.assigned: dict[str, Assigned] = {}
        self._workers = workers
        self._suites: dict[Path, LoadedSuite] = {}
        self._runs: dict[Path, SuiteRun] = {}

    @cached_property
    def choices(self) -> RoleChoices:
        """What the user said about models."""
        settings = self.settings
        return RoleChoices(
            model=settings.model,
            role=cast("RoleName | None", settings.role),
            roles=cast("dict[RoleName, str]", dict(settings.roles)),
            encoders=settings.encoders,
        )

    @cached_property
    def store(self) -> Store:
        """The store, opened."""
        store = Store(self.settings.store, self.settings.shared)
        keep_out_of_git(self.settings.home, self.settings.store)
        return store

    @cached_property
    def roster(self) -> Roster:
        """The models."""
        # Several workers on the same cores: more threads than cores make all of them slower.
        threads = max(1, (os.cpu_count() or 1) // self._workers) if self._workers > 1 else None
        return Roster(self.store, threads)

    @property
    def runners(self) -> list[RoleRunner]:
        """The models that were bound so far; none where the store could not be opened."""
        return list(self.roster.runners.values()) if "roster" in self.__dict__ else []

    @property
    def damage(self) -> list[str]:
        """What the store found broken so far."""
        return self.store.damage if "store" in self.__dict__ else []

    @property
    def folder(self) -> Path:
        """Where the processes of this run leave word for one another; gone when it ends."""
        return self.settings.home / "runs" / self.run_id

    @property
    def staged(self) -> Path:
        """Where this run's new baselines wait for the run to be complete."""
        return self.settings.report.parent / "staged" / self.run_id

    def suite(self, path: Path) -> LoadedSuite:
        """A suite, its data set listed.

        Raises CepError kinds, DataAbsentError, and NotConcernedError.
        """
        if path not in self._suites:
            suite = load_suite(path)
            # Before the roles: where the data is not here, nobody is asked for models.
            dataset = load_data(suite, self.settings.data, self.settings.samples)
            lineup, measures = cast_suite(suite, self.choices)
            dataset = dataset.repeated(self._seeds(suite))
            cases = tuple(list_cases(measures, suite.name, dataset, suite.table.groups))
            check_names(suite, cases)
            pooled = pooled_case(suite, cases)
            self._suites[path] = LoadedSuite(suite, dataset, lineup, measures, cases, pooled)
        return self._suites[path]

    def claim(self, path: Path, key: CaseKey, test: Overrides) -> Claim:
        """How a case is judged before alpha is divided: the run has the word, then the test."""
        settings = self.settings
        run = Overrides(
            gate=cast("GateName | None", settings.gate),
            tolerance=settings.tolerance,
            alpha=settings.alpha,
            sources=settings.sources,
        )
        return claim_of(self.suite(path).suite, key, run.over(test))

    def _seeds(self, suite: Suite) -> int:
        """How often each sample is played."""
        asked = self.settings.seeds
        seeds = suite.table.chain.seeds if asked is None else asked
        if seeds > 1 and self.choices.replay is not None:
            msg = (
                f"{self.choices.replay} brings its chains with it, one of each sample: suite "
                f"{suite.name!r} cannot be played with {seeds} seeds; take --cep-seeds=1"
            )
            raise SpecError(msg)
        return seeds

    @property
    def loaded(self) -> list[LoadedSuite]:
        """The suites that were loaded so far."""
        return list(self._suites.values())

    def run(self, path: Path) -> SuiteRun:
        """The measuring of a suite, one per process."""
        if path not in self._runs:
            loaded = self.suite(path)
            self._runs[path] = SuiteRun(
                loaded.suite, loaded.dataset, loaded.lineup, loaded.measures, self.roster
            )
        return self._runs[path]

    def model(self, suite_file: Path, role: RoleName) -> Model:
        """The loaded model that plays a role, in the suite if there is one, else by its option.

        Raises SpecError when nobody plays it, and what loading raises.
        """
        seats = self.suite(suite_file).lineup.seats if suite_file.exists() else {}
        seat = seats[role] if role in seats else named_seat(self.choices, role)
        return self.roster.runner(seat).model

    def close(self) -> None:
        """Release the store, if it was opened."""
        if "store" in self.__dict__:
            self.store.close()


PROCESS = pytest.StashKey[Process]()
