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
from pytest_cepbench.models.roles import Model, RoleName
from pytest_cepbench.plugin.options import Settings
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
from pytest_cepbench.suites.measures import Measure


@dataclass(frozen=True)
class LoadedSuite:
    """A suite with its data set, the roles chosen for it, its metrics and its cases."""

    suite: Suite
    dataset: Dataset
    lineup: Lineup
    measures: Mapping[str, Measure]
    cases: tuple[Case, ...]


class Process:
    """Suites, store and models of this process; everything is made when it is first needed.

    run_id: shared by all processes of a run. workers: how many of them share this machine.
    """

    def __init__(self, settings: Settings, run_id: str, workers: int = 1) -> None:
        self.settings = settings
        self.run_id = run_id
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
        store = Store(self.settings.store)
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
            cases = tuple(list_cases(measures, suite.name, dataset, suite.table.groups))
            self._suites[path] = LoadedSuite(suite, dataset, lineup, measures, cases)
        return self._suites[path]

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
