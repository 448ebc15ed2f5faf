"""Cases of a suite as test items, chosen by the marker `cep`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import (
    CepError,
    DataAbsentError,
    SuiteError,
    SuiteNotApplicableError,
    unknown_name,
)
from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import UNKNOWN_NAME, write_message
from pytest_cepbench.measures.cases import PooledCase
from pytest_cepbench.plugin.options import updating, usage_errors
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.definition import FILE_NAME
from pytest_cepbench.suites.gate_config import Overrides


@dataclass(frozen=True)
class CepMark:
    """Arguments of `@pytest.mark.cep(...)`, all by name.

    suite: path of the suite's file relative to the test module; `suite.toml` beside it if left out.
    categories: gate only these categories of the suite.
    metrics: gate only these metrics of the suite.
    tolerance: largest drop that does not matter, in place of the suite's.
    """

    suite: str | None = None
    categories: tuple[str, ...] | None = None
    metrics: tuple[str, ...] | None = None
    tolerance: float | None = None

    @classmethod
    def from_markers(cls, markers: Any) -> CepMark:
        """Merge a test's markers; the nearest one wins. Raises SuiteError naming what is wrong."""
        values: dict[str, Any] = {}
        known = [field.name for field in fields(cls)]
        for marker in markers:
            if marker.args:
                raise SuiteError(
                    f"@pytest.mark.cep takes its arguments by name ({', '.join(known)})"
                )
            for name, value in marker.kwargs.items():
                if name not in known:
                    raise SuiteError(f"@pytest.mark.cep: {unknown_name('argument', name, known)}")
                names = isinstance(value, list | tuple) and all(isinstance(n, str) for n in value)
                expected, fits = {
                    "suite": ("a path", isinstance(value, str)),
                    "tolerance": ("a number of at least 0", is_tolerance(value)),
                }.get(name, ("a list of names", names))
                if value is not None and not fits:  # None counts as left out
                    raise SuiteError(f"@pytest.mark.cep: {name} is {expected}, got {value!r}")
                values.setdefault(name, tuple(value) if isinstance(value, list) else value)
        return cls(**values)

    @property
    def partial(self) -> bool:
        """Whether it leaves out cases of the suite."""
        return self.categories is not None or self.metrics is not None

    @property
    def overrides(self) -> Overrides:
        """Its settings of the gate, with their source."""
        return Overrides(tolerance=self.tolerance, sources={"tolerance": "@pytest.mark.cep"})

    def suite_file(self, module: Path) -> Path:
        """Path of the suite's file; relative ones start at the test module."""
        return _resolved(module.parent, self.suite or FILE_NAME)


@cache  # asked for every case, and links in a path do not move within a run
def _resolved(folder: Path, name: str) -> Path:
    return (folder / name).resolve()


def is_tolerance(value: Any) -> bool:
    """True for a finite number of at least 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < float("inf")


def mark_of(node: pytest.Item) -> CepMark:
    """The `cep` marker of a test, with its class's and module's."""
    return CepMark.from_markers(node.iter_markers("cep"))


def parametrize(metafunc: pytest.Metafunc, evaluator: Evaluator) -> None:
    """Give a test function its cases.

    A data set that is not here gives one skipped item that says how to get it, and a suite that the
    model under test has no part in gives one that says so. What is wrong with suite, data or models
    is a collection error of one message.
    """
    try:
        mark = mark_of(metafunc.definition)
        path = mark.suite_file(metafunc.definition.path)
        pooled = not mark.partial and not updating(metafunc.config)
        cases = chosen = evaluator.suites.cases(path, pooled=pooled)
        for attribute, names in (("part", mark.categories), ("metric", mark.metrics)):
            known = {getattr(case.key, attribute) for case in cases}
            for name in names or ():
                if name not in known:
                    raise SuiteError(f"@pytest.mark.cep: {unknown_name(attribute, name, known)}")
            if names is not None:
                chosen = [case for case in chosen if getattr(case.key, attribute) in names]
    except (DataAbsentError, SuiteNotApplicableError) as reason:
        name = "data-absent" if isinstance(reason, DataAbsentError) else "not-concerned"
        marks = pytest.mark.skip(reason=visible(str(reason)))
        metafunc.parametrize("cep_case", [pytest.param(None, marks=marks, id=name)])
    except CepError as error:
        raise pytest.Collector.CollectError(visible(str(error))) from error
    else:
        metafunc.parametrize("cep_case", chosen, ids=[case.id for case in chosen])


def assign_policies(items: Sequence[pytest.Item], evaluator: Evaluator) -> None:
    """Divide alpha among the collected cases. Raises pytest.UsageError for a useless policy."""
    cases = {}
    for item in items:
        case = _case_of(item)
        if isinstance(case, Case):
            mark = mark_of(item)
            cases[item.nodeid] = mark.suite_file(item.path), case, mark.overrides
    evaluator.assign(cases)
    # What a worker raises here is no usage error of the run: there the cases are refused.
    if not any(hasattr(item.config, "workerinput") for item in items):
        with usage_errors():
            evaluator.check_policies(accepting=any(updating(item.config) for item in items[:1]))


def leave_hints(items: Sequence[pytest.Item], evaluator: Evaluator) -> None:
    """Leave word to the controller: hints on what cases need, for the scheduler; unknown names.

    The latter are names in options that no suite of the run knows.
    """
    from pytest_cepbench.plugin.workers.scheduler import write_hints

    pooled = {
        item.nodeid: mark_of(item).suite_file(item.path)
        for item in items
        if isinstance(_case_of(item), PooledCase)
    }
    write_hints(evaluator, pooled)
    try:
        evaluator.suites.check_names()
    except CepError as error:
        write_message(evaluator.context.make_folder(), UNKNOWN_NAME, visible(str(error)))


def _case_of(item: pytest.Item) -> Case | PooledCase | None:
    """What an item judges; None where it is no case, or one that is skipped."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("cep_case")
