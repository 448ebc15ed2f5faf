"""Turning the cases of a suite into test items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_cepbench.errors import CepError, DataAbsentError, SuiteNotApplicableError, unknown_name
from pytest_cepbench.escapes import visible
from pytest_cepbench.gate import Policy
from pytest_cepbench.plugin.evaluator import AssignedCase, Evaluator
from pytest_cepbench.plugin.markers import CepMark
from pytest_cepbench.plugin.run_settings import updating
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.cases import PooledCase
from pytest_cepbench.suites.gate_config import settle
from pytest_cepbench.suites.role_assignment import check_installed


def mark_of(node: pytest.Item) -> CepMark:
    """The `cep` marker of a test, with its class's and module's."""
    return CepMark.from_markers(node.iter_markers("cep"))


def parametrize(metafunc: pytest.Metafunc, process: Evaluator) -> None:
    """Give a test function its cases.

    A data set that is not here gives one skipped item that says how to get it, a suite that the
    model under test has no part in one that says so; whatever is wrong
    with suite, data or models is a collection error of one message.
    """
    try:
        mark = mark_of(metafunc.definition)
        path = mark.suite_file(metafunc.definition.path)
        loaded = process.suites.get(path)
        # A list of cases and a plan need no models.
        if not (process.settings.listing or process.settings.plan):
            check_installed(loaded.suite, loaded.lineup)
        cases: list[Case | PooledCase] = [*_selected(loaded.cases, mark)]
        if loaded.pooled is not None and not mark.partial and not updating(metafunc.config):
            cases.append(loaded.pooled)
    except DataAbsentError as absence:
        _skip(metafunc, str(absence), "data-absent")
    except SuiteNotApplicableError as reason:
        _skip(metafunc, str(reason), "not-concerned")
    except CepError as error:
        raise pytest.Collector.CollectError(visible(str(error))) from error
    else:
        metafunc.parametrize("cep_case", cases, ids=[case.id for case in cases])


def assign_policies(items: Sequence[pytest.Item], process: Evaluator) -> None:
    """Divide alpha among the cases that were collected: a case's share is known before it runs."""
    cases, claims = {}, {}
    for item in items:
        case = case_of(item)
        if isinstance(case, Case):
            mark = mark_of(item)
            path = mark.suite_file(item.path)
            cases[item.nodeid] = path, case
            claim = claims[item.nodeid] = process.suites.claim(path, case.key, mark.overrides)
            # What a worker raises here is no usage error of the run: there the cases are refused.
            if not hasattr(item.config, "workerinput"):
                _check_policy(process, path, case, claim.policy)
    for nodeid, policy in settle(claims).items():
        process.assigned[nodeid] = AssignedCase(*cases[nodeid], policy)


def _check_policy(process: Evaluator, path: Path, case: Case, policy: Policy) -> None:
    """Raise pytest.UsageError for a policy that lets everything pass."""
    try:
        process.suites.check_policy(path, case.key, policy)
    except CepError as error:
        raise pytest.UsageError(visible(str(error))) from None


def leave_outlines(items: Sequence[pytest.Item], process: Evaluator) -> None:
    """Leave word of what the collected cases need, for whoever deals them to workers."""
    from pytest_cepbench.plugin.workers import hints

    pooled = {
        item.nodeid: mark_of(item).suite_file(item.path)
        for item in items
        if isinstance(case_of(item), PooledCase)
    }
    hints.leave_outlines(process, pooled)


def case_of(item: pytest.Item) -> Case | PooledCase | None:
    """What an item judges; None where it is no case, or one that is skipped."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("cep_case")


def _skip(metafunc: pytest.Metafunc, reason: str, name: str) -> None:
    marks = pytest.mark.skip(reason=visible(reason))
    metafunc.parametrize("cep_case", [pytest.param(None, marks=marks, id=name)])


def _selected(cases: tuple[Case, ...], mark: CepMark) -> list[Case]:
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
