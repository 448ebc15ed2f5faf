"""Turning the cases of a suite into test items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_cepbench.errors import CepError, DataAbsentError, SuiteNotApplicableError, unknown_name
from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.gate import Policy
from pytest_cepbench.plugin.markers import CepMark
from pytest_cepbench.plugin.run_settings import updating
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.cases import PooledCase


def mark_of(node: pytest.Item) -> CepMark:
    """The `cep` marker of a test, with its class's and module's."""
    return CepMark.from_markers(node.iter_markers("cep"))


def parametrize(metafunc: pytest.Metafunc, evaluator: Evaluator) -> None:
    """Give a test function its cases.

    A data set that is not here gives one skipped item that says how to get it, a suite that the
    model under test has no part in one that says so; whatever is wrong
    with suite, data or models is a collection error of one message.
    """
    try:
        mark = mark_of(metafunc.definition)
        path = mark.suite_file(metafunc.definition.path)
        pooled = not mark.partial and not updating(metafunc.config)
        cases = _selected(evaluator.suites.cases(path, pooled=pooled), mark)
    except DataAbsentError as absence:
        _skip(metafunc, str(absence), "data-absent")
    except SuiteNotApplicableError as reason:
        _skip(metafunc, str(reason), "not-concerned")
    except CepError as error:
        raise pytest.Collector.CollectError(visible(str(error))) from error
    else:
        metafunc.parametrize("cep_case", cases, ids=[case.id for case in cases])


def assign_policies(items: Sequence[pytest.Item], evaluator: Evaluator) -> None:
    """Divide alpha among the cases that were collected. Raises pytest.UsageError for a useless policy."""
    cases = {}
    for item in items:
        case = case_of(item)
        if isinstance(case, Case):
            mark = mark_of(item)
            cases[item.nodeid] = mark.suite_file(item.path), case, mark.overrides
    # What a worker raises here is no usage error of the run: there the cases are refused.
    if not any(hasattr(item.config, "workerinput") for item in items):
        for path, case, overrides in cases.values():
            policy = evaluator.suites.claim(path, case.key, overrides).policy
            _check_policy(evaluator, path, case, policy)
    evaluator.assign(cases)


def _check_policy(evaluator: Evaluator, path: Path, case: Case, policy: Policy) -> None:
    """Raise pytest.UsageError for a policy that lets everything pass."""
    try:
        evaluator.suites.check_policy(path, case.key, policy)
    except CepError as error:
        raise pytest.UsageError(visible(str(error))) from None


def write_case_hints(items: Sequence[pytest.Item], evaluator: Evaluator) -> None:
    """Leave hints on what the collected cases need, for the scheduler."""
    from pytest_cepbench.plugin.workers import hints

    pooled = {
        item.nodeid: mark_of(item).suite_file(item.path)
        for item in items
        if isinstance(case_of(item), PooledCase)
    }
    hints.write_hints(evaluator, pooled)


def case_of(item: pytest.Item) -> Case | PooledCase | None:
    """What an item judges; None where it is no case, or one that is skipped."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("cep_case")


def _skip(metafunc: pytest.Metafunc, reason: str, name: str) -> None:
    marks = pytest.mark.skip(reason=visible(reason))
    metafunc.parametrize("cep_case", [pytest.param(None, marks=marks, id=name)])


def _selected(cases: list[Case | PooledCase], mark: CepMark) -> list[Case | PooledCase]:
    """The cases that a marker leaves in. Raises CepError for a name that no case has."""
    chosen = list(cases)
    wanted = {"part": mark.categories, "metric": mark.metrics}
    for attribute, names in wanted.items():
        if names is None:
            continue
        known = {getattr(case.key, attribute) for case in cases}
        for name in names:
            if name not in known:
                msg = f"@pytest.mark.cep: {unknown_name(attribute, name, known)}"
                raise CepError(msg)
        chosen = [case for case in chosen if getattr(case.key, attribute) in names]
    return chosen
