"""The fixtures that test modules use; heavy modules are imported when one of them runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.plugin.hooks import run_of

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.case_runner import Acceptance
    from pytest_cepbench.models import RoleName
    from pytest_cepbench.report.result import CaseResult
    from pytest_cepbench.suites import Case


@pytest.fixture
def cep_case() -> Case:
    """The case to judge; parametrized over the cases of the suite.toml beside the test module."""
    pytest.fail("cep_case has no suite: put a suite.toml beside the test module", pytrace=False)


@pytest.fixture
def cep_gate(request: pytest.FixtureRequest, cep_case: Case) -> Callable[..., CaseResult]:
    """Judge the case: `cep_gate(cep_case)` measures it and fails the test unless it passes.

    Returns the result of a case that passes; one that is inconclusive and passes is warned of.
    `tolerance=` replaces the suite's for this test.
    """
    from msgspec.structs import replace

    from pytest_cepbench.errors import InconclusiveWarning
    from pytest_cepbench.evaluation.case_runner import judge_case
    from pytest_cepbench.plugin.collection import is_tolerance, mark_of
    from pytest_cepbench.plugin.options import accepts_new_only
    from pytest_cepbench.report.text import explain, figures_first
    from pytest_cepbench.report.writers import properties_of
    from pytest_cepbench.suites.gate_config import Overrides

    mark = mark_of(request.node)
    run = run_of(request.config)
    evaluator = run.evaluator()
    suite_file = mark.suite_file(request.path)
    acceptance: Acceptance = "new" if accepts_new_only(request.config) else "none"
    if request.config.getoption("update_snapshots", default=False):
        acceptance = "all"

    def gate(case: Case = cep_case, *, tolerance: float | None = None) -> CaseResult:
        if tolerance is not None and not is_tolerance(tolerance):
            reason = f"cep_gate: tolerance is a number of at least 0, got {tolerance!r}"
            pytest.fail(reason, pytrace=False)
        record = run.records.of(request.node)
        here = Overrides(tolerance=tolerance, sources={"tolerance": "cep_gate(tolerance=)"})
        with run.gating:
            record.inputs = evaluator.inputs(suite_file)
            if record.after_error:
                evaluator.forget(suite_file)
                record.after_error = False
            result = judge_case(
                evaluator,
                suite_file,
                case,
                request.node.nodeid,
                here.over(mark.overrides),
                acceptance,
            )
        if result.presentation.outcome == "inconclusive" and not result.accepted:
            try:  # the run warns once, of all such cases
                with warnings.catch_warnings(record=True):
                    request.node.warn(InconclusiveWarning(figures_first(result)))
            except InconclusiveWarning:  # -W error: what is not known is to fail, in the ledger too
                result = replace(result, strict=True)
        record.results.append(result)
        record.waiting.append((record.attempt, result))
        request.node.user_properties.extend(properties_of(result))
        if not result.passes:
            pytest.fail(explain(result), pytrace=False)
        return result

    return gate


def _model_fixture(role: RoleName) -> Any:
    """A fixture that gives the loaded model of a role."""

    def loaded(request: pytest.FixtureRequest) -> Any:
        from pytest_cepbench.errors import CepError
        from pytest_cepbench.escapes import visible
        from pytest_cepbench.plugin.collection import mark_of

        try:
            suite_file = mark_of(request.node).suite_file(request.path)
            return run_of(request.config).evaluator().model(suite_file, role)
        except CepError as error:
            pytest.fail(visible(str(error)), pytrace=False)

    loaded.__doc__ = (
        f"The loaded {role} of the run (see `pytest_cepbench.{role.capitalize()}`), "
        "one per process."
    )
    return pytest.fixture(name=f"cep_{role}")(loaded)


cep_describer = _model_fixture("describer")
cep_generator = _model_fixture("generator")
cep_encoder = _model_fixture("encoder")
cep_detector = _model_fixture("detector")
cep_judge = _model_fixture("judge")
cep_writer = _model_fixture("writer")
cep_editor = _model_fixture("editor")
cep_interleaver = _model_fixture("interleaver")
cep_vqa = _model_fixture("vqa")
