"""The chains that the page of `cepbench compare` shows: which, and from which stores."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.cli.results import RunReport, key_of
from pytest_cepbench.cli.session import read_data, suite_file
from pytest_cepbench.errors import CepError
from pytest_cepbench.evaluation.compared_chains import (
    SuiteChains,
    beside,
    how_to_get,
    largest_differences,
    suite_file_of,
)
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.option_values import is_url
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.comparison_page import in_tolerances
from pytest_cepbench.store import Store
from pytest_cepbench.studies.comparison import ComparedCase, Comparison

_MOST_CASES = 3


@contextmanager
def read_only_store(locations: Sequence[str]) -> Iterator[Store]:
    """A store that has what those at some places have, and writes to none of them.

    Raises StoreError.
    """
    shared = [text if is_url(text) else Path(text).absolute() for text in locations]
    with (
        TemporaryDirectory(prefix="cepbench-compare-") as folder,
        Store(Path(folder), shared, writing=False) as store,
    ):
        yield store


def chains_of(
    comparison: Comparison,
    reports: Mapping[str, RunReport],
    arguments: Namespace,
    store: Store,
) -> list[CaseResult]:
    """The cases of a comparison that differ most, with chains of both runs.

    reports: by the names of the runs.
    Where chains cannot be shown the case says why.
    """
    runs = comparison.first.name, comparison.second.name
    by_key = [{str(key_of(case)): case for case in reports[name].cases} for name in runs]
    return [
        _case(compared, (by_key[0][case], by_key[1][case]), runs, arguments, store)
        for compared in _chosen(comparison)
        if (case := compared.first.case)
    ]


def _chosen(comparison: Comparison) -> Iterator[ComparedCase]:
    """The cases whose chains are shown: of each metric of a suite the one that lost most."""
    able = [case for case in comparison.cases if largest_differences(case)]
    able.sort(key=lambda case: (case.verdict != Verdict.REGRESSED, in_tolerances(case)))
    taken: set[tuple[str, str]] = set()
    for case in able:
        key = CaseKey.parse(case.first.case)
        if (key.suite, key.metric) not in taken and len(taken) < _MOST_CASES:
            taken.add((key.suite, key.metric))
            yield case


def _case(
    compared: ComparedCase,
    results: tuple[CaseResult, CaseResult],
    names: tuple[str, str],
    arguments: Namespace,
    store: Store,
) -> CaseResult:
    try:
        path = suite_file_of(results[1], [suite_file(path) for path in arguments.suite_file])
        with importable([path]):
            suite = SuiteChains(path, [results[1]], store, read_data(arguments.data))
            chains = suite.show(compared, largest_differences(compared))
    except CepError as error:
        return beside(results[1], compared, names[0], [], f"Chains cannot be shown: {error}")
    missing = how_to_get(chains, names, results, arguments.store)
    return beside(results[1], compared, names[0], chains, missing)
