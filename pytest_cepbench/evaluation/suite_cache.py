"""The suites of a run: each is loaded once, with its data, its roles, its metrics and its cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.gate import CaseKey, Policy
from pytest_cepbench.gate.policy import GateName, check_span
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.suites import (
    Assignments,
    Case,
    ModelPool,
    RoleChoices,
    Suite,
    SuiteRun,
    cast_suite,
    list_cases,
    load_data,
    load_suite,
)
from pytest_cepbench.suites.cases import PooledCase
from pytest_cepbench.suites.gate_config import (
    Overrides,
    SettingSource,
    check_names,
    claim_of,
    pooled_case,
)
from pytest_cepbench.suites.measures import Measure
from pytest_cepbench.suites.model_options import Part
from pytest_cepbench.suites.role_assignment import check_installed


@dataclass(frozen=True)
class LoadedSuite:
    """A suite with its data set, the roles chosen for it, its metrics and its cases.

    pooled: the verdict of all of it, where it wants one.
    """

    suite: Suite
    dataset: Dataset
    lineup: Assignments
    measures: Mapping[str, Measure]
    cases: tuple[Case, ...]
    pooled: PooledCase | None


class SuiteCache:
    """Suites by path, each loaded when it is first needed."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._loaded: dict[Path, LoadedSuite] = {}

    @cached_property
    def choices(self) -> RoleChoices:
        """The models that the engineer chose."""
        settings = self._settings
        return RoleChoices(
            model=settings.model,
            role=cast("Part | None", settings.role),
            roles=cast("dict[RoleName, str]", dict(settings.roles)),
            encoders=settings.encoders,
        )

    def get(self, path: Path) -> LoadedSuite:
        """A suite, its data set listed.

        Raises CepError kinds: DataAbsentError and SuiteNotApplicableError where its cases are skipped.
        """
        if path not in self._loaded:
            suite = load_suite(path)
            # Before the roles: where the data is not here, no model is needed.
            dataset = load_data(suite, self._settings.data, self._settings.samples)
            lineup, measures = cast_suite(suite, self.choices)
            dataset = dataset.repeated(self._seeds(suite))
            cases = tuple(list_cases(measures, suite.name, dataset, suite.table.groups))
            check_names(suite, cases)
            pooled = pooled_case(suite, cases)
            self._loaded[path] = LoadedSuite(suite, dataset, lineup, measures, cases, pooled)
        return self._loaded[path]

    def cases(self, path: Path, *, pooled: bool) -> list[Case | PooledCase]:
        """The cases of a suite, whose models' packages are installed.

        pooled: whether to add the verdict of all of it, where the suite wants one.
        Raises as `get`, and MissingDependencyError.
        """
        loaded = self.get(path)
        # A list of cases and a plan need no models.
        if not (self._settings.listing or self._settings.plan):
            check_installed(loaded.suite, loaded.lineup)
        return [*loaded.cases, *([loaded.pooled] if pooled and loaded.pooled else [])]

    @property
    def loaded(self) -> list[LoadedSuite]:
        """The suites that were loaded so far."""
        return list(self._loaded.values())

    def claim(self, path: Path, key: CaseKey, test: Overrides) -> SettingSource:
        """How a case is judged before alpha is divided: by the run, then the test, then the suite."""
        settings = self._settings
        run = Overrides(
            gate=cast("GateName | None", settings.gate),
            tolerance=settings.tolerance,
            alpha=settings.alpha,
            sources=settings.sources,
        )
        return claim_of(self.get(path).suite, key, run.over(test))

    def check_policy(self, path: Path, key: CaseKey, policy: Policy) -> None:
        """Raise SuiteError for a tolerance that no drop of the case's metric can exceed."""
        measure = self.get(path).measures.get(key.metric)
        if measure is None or measure.span is None:
            return
        try:
            check_span(policy, measure.span, f"{key} ({measure.label})")
        except ValueError as error:
            raise SuiteError(str(error)) from None

    def measuring(self, path: Path, models: ModelPool) -> SuiteRun:
        """The measuring of a suite by these models."""
        loaded = self.get(path)
        return SuiteRun(loaded.suite, loaded.dataset, loaded.lineup, loaded.measures, models)

    def _seeds(self, suite: Suite) -> int:
        """How often each sample is played."""
        asked = self._settings.seeds
        seeds = suite.table.chain.seeds if asked is None else asked
        if seeds > 1 and self.choices.replay is not None:
            msg = (
                f"{self.choices.replay} brings its chains with it, one of each sample: suite "
                f"{suite.name!r} cannot be played with {seeds} seeds; take --cep-seeds=1"
            )
            raise SpecError(msg)
        return seeds
