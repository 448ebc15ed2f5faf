"""The suites of a run: each is loaded once, with its data, its roles, its metrics and its cases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from pytest_cepbench.errors import SuiteError
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.gate import CaseKey, Measurement, Policy
from pytest_cepbench.gate.baseline import anchor_path, baseline_path, read_baseline
from pytest_cepbench.gate.policy import GateName, check_span
from pytest_cepbench.gate.sensitivity import check_headroom
from pytest_cepbench.measures.cases import PooledCase
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import PRESET
from pytest_cepbench.option_values import LEAST_ALPHA
from pytest_cepbench.suites import Case, PreparedSuite, RoleChoices, load_prepared_suite
from pytest_cepbench.suites.definition import load_suite
from pytest_cepbench.suites.gate_config import Overrides, claim_of
from pytest_cepbench.suites.role_assignment import (
    Part,
    check_data_names,
    check_encoders,
    check_installed,
    check_presets,
)

_OF_ALL_RUNS = ("ini", "CEPBENCH")
"""Beginnings of sources of options that other runs of the project have too."""


@dataclass(frozen=True)
class AssignedCase:
    """A case of this run, and how it is judged, its share of alpha included."""

    suite_file: Path
    case: Case
    policy: Policy


class SuiteCache:
    """Suites by path, each loaded when it is first needed.

    settings: what the engineer asked for.
    run_folder: where processes of the run leave messages for one another; None for one process.
    """

    def __init__(self, settings: RunSettings, run_folder: Path | None = None) -> None:
        self._settings = settings
        self._run_folder = run_folder
        self._loaded: dict[Path, PreparedSuite] = {}
        self._asked: dict[Path, None] = {}

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

    def get(self, path: Path) -> PreparedSuite:
        """A suite, its data set listed.

        Raises CepError kinds: DataAbsentError and SuiteNotApplicableError where its cases are
        skipped.
        """
        self._asked[path] = None
        if path not in self._loaded:
            settings = self._settings
            loaded = load_prepared_suite(
                path,
                self.choices,
                settings.data,
                settings.samples,
                settings.seeds,
                self._run_folder,
            )
            for other, known in self._loaded.items():
                if known.suite.name == loaded.suite.name:
                    raise SuiteError(
                        f"{path} and {other} are both called {known.suite.name!r}, by which their "
                        "baselines are found: rename one, or run them apart with a "
                        "--cep-baselines of its own each"
                    )
            self._loaded[path] = loaded
            if settings.home.exists():
                with suppress(OSError):  # a project that cannot be written to
                    keep_out_of_git(settings.home, settings.home)
        return self._loaded[path]

    def cases(self, path: Path, *, pooled: bool) -> list[Case | PooledCase]:
        """The cases of a suite, whose models' packages are installed.

        pooled: whether to add the verdict of all of it, where the suite wants one.
        Raises as `get`, and MissingDependencyError.
        """
        loaded = self.get(path)
        # A list of cases and a plan need no models.
        if not (self._settings.listing or self._settings.plan):
            check_installed(loaded.suite, loaded.assignments)
        return [*loaded.cases, *([loaded.pooled] if pooled and loaded.pooled else [])]

    def references(
        self, key: CaseKey, read: Callable[[Path, CaseKey], Measurement | None] = read_baseline
    ) -> tuple[Measurement | None, Measurement | None]:
        """Baseline and anchor of a case. Raises as `read`."""
        root = self._settings.baselines
        return read(baseline_path(root, key), key), read(anchor_path(root, key), key)

    @property
    def loaded(self) -> list[PreparedSuite]:
        """The suites that were loaded so far."""
        return list(self._loaded.values())

    def check_names(self) -> None:
        """Raise SpecError for a data set, encoder or preset that was named, and that no suite has.

        Those in the ini file and in the environment may be of other runs.
        """
        settings = self._settings
        source, origin = (settings.sources.get(name, "ini") for name in ("data", "encoder"))
        names = () if source.startswith(_OF_ALL_RUNS) else settings.data
        encoders = () if origin.startswith(_OF_ALL_RUNS) else settings.encoders
        named = self.choices.assigned
        if not (names or encoders or any(model.spec.scheme == PRESET for model in named.values())):
            return
        try:
            suites = [load_suite(path) for path in self._asked]
            if suites:
                check_data_names(names, suites, source)
                check_encoders(encoders, suites, origin)
                check_presets(named, suites)
        except SuiteError:  # which was said when the suite was loaded
            return

    def claim(self, path: Path, key: CaseKey, test: Overrides) -> tuple[Policy, float]:
        """How a case is judged, as of `claim_of`: by run, then test, then suite."""
        settings = self._settings
        run = Overrides(
            gate=cast("GateName | None", settings.gate),
            tolerance=settings.tolerance,
            alpha=settings.alpha,
            sources=settings.sources,
        )
        return claim_of(self.get(path).suite, key, run.over(test))

    def check_policy(
        self,
        own: AssignedCase,
        baseline: Measurement | None = None,
        anchor: Measurement | None = None,
    ) -> None:
        """Raise SuiteError for a tolerance or a share of alpha at which no drop of the case fails.

        baseline, anchor: from which a case that can fail a run loses no more than down to what
        chance gives; without a baseline, which becomes the anchor next, the whole span counts. Of a
        tolerance that nobody set, the case says that it sees nothing, and is undecided.
        """
        key, policy = own.case.key, own.policy
        measure = self.get(own.suite_file).measures.get(key.metric)
        flips = policy.gate == "regression" and not self._settings.series
        # At least so much: an anchor that differs and the baseline have half each, and so has
        # the last of several looks.
        halves = (anchor is not None) + (self._settings.inconclusive == "more")
        if flips and policy.primary and (level := policy.alpha / 2**halves) < LEAST_ALPHA:
            raise SuiteError(
                f"{key} has {level:.2g} of alpha, at which no drop could be told from noise, so "
                "it would never fail: give it a larger weight, the run fewer cases or more alpha"
            )
        if measure is None or measure.span is None:
            return
        what = f"{key} ({measure.label})"
        try:
            check_span(policy, measure.span, what)
            given_tolerances = policy.given_tolerances.items()
            records = baseline, anchor or baseline
            for (name, given), record in zip(given_tolerances, records, strict=False):
                if record is not None and policy.primary and policy.origins.get(name):
                    check_headroom(name, *given, record, measure.span, what)
        except ValueError as error:
            raise SuiteError(str(error)) from None
