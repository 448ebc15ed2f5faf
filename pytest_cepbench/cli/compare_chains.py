"""The chains that the page of `cepbench compare` shows: which, and from which stores."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.cli.results import RunReport, key_of
from pytest_cepbench.cli.session import fixed_roles, read_data
from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import CepError, SpecError
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
from pytest_cepbench.report.comparison_page import change_in_tolerances
from pytest_cepbench.store import Store
from pytest_cepbench.studies.comparison import ComparedCase, Comparison
from pytest_cepbench.suites import RoleChoices

_MOST_CASES = 3


@dataclass(frozen=True)
class ChainOptions:
    """What was typed on where chains are.

    stores: folders and URLs.
    files: of suites.
    choices: models that are held fixed, where they are not those of the suite.
    data: data set name -> path or URL.
    """

    stores: Sequence[str]
    files: Sequence[Path]
    choices: RoleChoices
    data: Mapping[str, DataPlace]


def read_options(arguments: Namespace) -> ChainOptions:
    """The options. Raises SpecError and SuiteError naming the one that is wrong."""
    default = Path(".cepbench/store")
    for text in arguments.store:
        if not is_url(text) and not Path(text).is_dir():
            raise SpecError(f"--store {text!r}: the folder or URL of a store is expected")
    roles, encoders = fixed_roles(arguments)
    return ChainOptions(
        stores=arguments.store or [str(default)] * default.is_dir(),
        files=arguments.suite_file,
        choices=RoleChoices(roles=roles, encoders=encoders),
        data=read_data(arguments.data),
    )


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
    options: ChainOptions,
    store: Store,
) -> list[CaseResult]:
    """The cases of a comparison that differ most, with chains of both runs.

    reports: by the names of the runs.
    Where chains cannot be shown the case says why.
    """
    runs = comparison.first.name, comparison.second.name
    by_key = [{str(key_of(case)): case for case in reports[name].cases} for name in runs]
    return [
        _case(compared, (by_key[0][case], by_key[1][case]), runs, options, store)
        for compared in _chosen(comparison)
        if (case := compared.first.case)
    ]


def _chosen(comparison: Comparison) -> Iterator[ComparedCase]:
    """The cases whose chains are shown: of each metric of a suite the one that lost most."""
    able = [case for case in comparison.cases if largest_differences(case)]
    able.sort(key=lambda case: (case.verdict != Verdict.REGRESSED, change_in_tolerances(case)))
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
    options: ChainOptions,
    store: Store,
) -> CaseResult:
    first, second = names[0], results[1]
    record = compared.second.record
    assert record is not None  # or it were not compared
    try:
        path = suite_file_of(second, options.files)
        with importable([path]):
            suite = SuiteChains(path, record, store, options.choices, options.data)
            chains = suite.show(compared, largest_differences(compared))
    except CepError as error:
        return beside(second, compared, first, [], f"Chains cannot be shown: {error}")
    return beside(
        second, compared, first, chains, how_to_get(chains, names, results, options.stores)
    )
