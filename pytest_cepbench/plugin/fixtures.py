"""The fixtures that test modules use; heavy modules are imported when one of them runs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.settings import ROLES
from pytest_cepbench.plugin.controller import CONTROLLER
from pytest_cepbench.plugin.records import RECORDS
from pytest_cepbench.plugin.run_settings import settings_of

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.models.protocols import RoleName
    from pytest_cepbench.report import CaseResult
    from pytest_cepbench.suites import Case


EVALUATOR: pytest.StashKey[Evaluator] = pytest.StashKey()


def evaluator_of(config: pytest.Config) -> Evaluator:
    """The evaluator of this process, made at the first call."""
    if EVALUATOR not in config.stash:
        from pytest_cepbench.evaluation.evaluator import Evaluator

        controller = config.stash.get(CONTROLLER, None)
        own = None if controller is None else Evaluator(controller.context)
        config.stash[EVALUATOR] = own or _evaluator_of_worker(config)
    return config.stash[EVALUATOR]


def _evaluator_of_worker(config: pytest.Config) -> Evaluator:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.evaluation.model_identity import IdentityAgreement
    from pytest_cepbench.evaluation.run_context import RunContext

    sent: dict[str, Any] = config.workerinput  # type: ignore[attr-defined] # xdist's workers have it
    context = RunContext(
        settings_of(config),
        sent["cepbench_run"],
        sent["cepbench_started"],
        workers=sent["workercount"],
        worker=sent["workerid"],
    )
    return Evaluator(context, IdentityAgreement(context, sent["cepbench_models"]).check)


@pytest.fixture
def cep_case() -> Case:
    """The case to judge; parametrized over the cases of the suite.toml beside the test module."""
    pytest.fail("cep_case has no suite: put a suite.toml beside the test module", pytrace=False)


@pytest.fixture
def cep_gate(
    request: pytest.FixtureRequest, cep_case: Case, snapshot: Any
) -> Callable[..., CaseResult]:
    """Judge the case: `cep_gate(cep_case)` measures it and fails the test unless it passes.

    Returns the result of a case that passes; one that is inconclusive and passes is warned of.
    `tolerance=` replaces the suite's for this test.
    """
    from msgspec.structs import replace

    from pytest_cepbench.errors import InconclusiveWarning
    from pytest_cepbench.evaluation.case_runner import CaseRunner
    from pytest_cepbench.plugin.collection import mark_of
    from pytest_cepbench.plugin.markers import is_tolerance
    from pytest_cepbench.plugin.snapshots import SnapshotCounter, acceptance_of
    from pytest_cepbench.report.text import explain, one_line
    from pytest_cepbench.report.writers import properties_of
    from pytest_cepbench.suites.gate_config import Overrides

    mark = mark_of(request.node)
    records = request.config.stash[RECORDS]
    evaluator = evaluator_of(request.config)
    counter = SnapshotCounter(snapshot, evaluator)
    runner = CaseRunner(
        evaluator, mark.suite_file(request.path), acceptance_of(snapshot), counter.count
    )

    def gate(case: Case = cep_case, *, tolerance: float | None = None) -> CaseResult:
        if tolerance is not None and not is_tolerance(tolerance):
            msg = f"cep_gate: tolerance is a number of at least 0, got {tolerance!r}"
            pytest.fail(msg, pytrace=False)
        record = records.of(request.node)
        if record.after_error:
            evaluator.forget(runner.suite_file)
            record.after_error = False
        here = Overrides(tolerance=tolerance, sources={"tolerance": "cep_gate(tolerance=)"})
        result = runner(case, request.node.nodeid, here.over(mark.overrides))
        if result.presentation.outcome == "inconclusive" and not result.accepted:
            try:
                request.node.warn(InconclusiveWarning(one_line(result)))
            except InconclusiveWarning:  # -W error: what is not known is to fail, in the ledger too
                result = replace(result, strict=True)
        record.add(result)
        request.node.user_properties.extend(properties_of(result))
        if not result.passes:
            pytest.fail(explain(result), pytrace=False)
        return result

    return gate


def _model_fixture(role: RoleName, name: str) -> Any:
    """A fixture that gives the loaded model of a role."""

    def loaded(request: pytest.FixtureRequest) -> Any:
        return _model(request, role)

    loaded.__doc__ = f"The loaded {role} of the run (see `pytest_cepbench.{role.capitalize()}`), one per process."
    return pytest.fixture(name=name)(loaded)


cep_describer = _model_fixture("describer", "cep_describer")
cep_generator = _model_fixture("generator", "cep_generator")
cep_encoder = _model_fixture("encoder", "cep_encoder")
cep_detector = _model_fixture("detector", "cep_detector")
cep_judge = _model_fixture("judge", "cep_judge")


class BareFixtures:
    """The same fixtures as `describer`, `generator` and so on, but for names that another plugin has.

    Fixtures of conftest files and test modules go before these in any case.
    """

    @pytest.hookimpl(trylast=True)  # after pytest has collected the fixtures of all plugins
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Register the names that are free."""
        manager = session._fixturemanager  # noqa: SLF001 - pytest tells in no other way who has a name
        owner = ModuleType("cepbench_bare_fixtures")
        for role in ROLES:
            if not manager.getfixturedefs(role, session):
                setattr(owner, role, _model_fixture(cast("RoleName", role), role))
        session.config.pluginmanager.register(owner, owner.__name__)


def _model(request: pytest.FixtureRequest, role: RoleName) -> Any:
    from pytest_cepbench.errors import CepError
    from pytest_cepbench.plugin.collection import mark_of

    try:
        return evaluator_of(request.config).model(
            mark_of(request.node).suite_file(request.path), role
        )
    except CepError as error:
        pytest.fail(visible(str(error)), pytrace=False)
