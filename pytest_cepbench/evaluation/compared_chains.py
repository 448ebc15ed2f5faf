"""The chains of two compared runs side by side, as stores have them: no model is loaded.

The chains of each run are those of the model that its record names. They are shown only where the
suite's file still asks for what the records say, so that no other run's chains are taken for them.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from pytest_cepbench.chains.steps import recall
from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import CepError, SpecError, SuiteError
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.evaluation.shown_chains import chain_shown
from pytest_cepbench.gate import CaseKey, Measurement, Verdict
from pytest_cepbench.gate.compare import Loser
from pytest_cepbench.gate.pairing import SAMPLE_FIELDS
from pytest_cepbench.models.protocols import ROLE_NAMES
from pytest_cepbench.option_values import is_url
from pytest_cepbench.report import CaseResult, ChainShown
from pytest_cepbench.report.comparison_page import change_in_tolerances
from pytest_cepbench.store import Store
from pytest_cepbench.studies.comparison import ComparedCase, RunComparison
from pytest_cepbench.studies.rated_items import seeds_of
from pytest_cepbench.suites import (
    ModelPool,
    RoleChoices,
    load_prepared_suite,
    load_suite,
)
from pytest_cepbench.suites.chain_run import ChainRun, require_chains
from pytest_cepbench.suites.stored_chains import StoredChains, stored_chains

MOST_SAMPLES = 3
"""Samples whose chains are shown of a case."""

_MOST_CASES = 3

_IN_NAME = "shapes:"  # comes with the package and plays every role


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


def _suite_chains(
    path: Path, compared: ComparedCase, options: ChainOptions, store: Store
) -> list[ChainShown]:
    """The chains of the samples that differ most by the second run, beside those of the first.

    path: of the suite's file.
    store: with everything that is read.
    A side that stores do not have is left empty. Raises SuiteError where the suite's file is not as
    it was when the runs measured, or is of answers, and what preparing it and reading chains raise.
    """
    first, second = compared.first.record, compared.second.record
    assert first is not None  # or it were not paired
    assert second is not None
    # The model under test in name: the chains of others are read in its place. No spec of a report
    # is resolved, since reports may come from anywhere and specs can import code.
    choices, tested = options.choices, second.model.get("role", "")
    roles = {role: _IN_NAME for role in ROLE_NAMES if role == tested}
    choices = replace(choices, roles={**choices.roles, **roles})
    if not roles:
        choices = replace(choices, model=_IN_NAME, role="unified")
    seeds = seeds_of({CaseKey.parse(second.case): second})
    prepared = load_prepared_suite(path, choices, options.data, seeds=seeds)
    run = require_chains(prepared.run(ModelPool(store)), "a comparison of chains")
    case = {str(case.key): case for case in prepared.cases}.get(compared.first.case)
    if case is None:
        raise SuiteError(f"{path} has no case {compared.first.case!r} any more")
    losers = largest_differences(compared)
    names = {loser.sample for loser in losers}
    known = [sample for sample in run.dataset.samples if sample.id in names]
    if {sample.id for sample in known} != names:
        raise SuiteError(f"{path} has other samples now: give --data as in the runs")
    changed = [
        name
        for name, value in run.identity(case, known).items()
        if name not in SAMPLE_FIELDS and second.identity.get(name) != value
    ]
    if changed:
        raise SuiteError(f"{path} is not as it was measured: {', '.join(changed)} changed since")
    before, now = (_stored(run, record) for record in (first, second))
    start = run.starts([case])[0]
    return [
        chain_shown(
            loser.sample,
            (loser.candidate, loser.baseline),
            now.excerpt(case, loser.sample, start),
            before.excerpt(case, loser.sample, start),
            store,
        )
        for loser in losers
    ]


def _stored(run: ChainRun, record: Measurement) -> StoredChains:
    """The chains of a record's model. Raises SuiteError where it does not name all that made it."""
    step, tested = record.model.get("step", ""), record.model.get("role", "")
    if not step:
        raise SuiteError(
            "a report names no model whose chains stores could have: they were made elsewhere"
        )
    if {bound.role for bound in recall(step)} != set(tested.split("+")):
        raise SuiteError(f"the model.step of a report is not of its {tested}: run it again")
    return stored_chains(run, step)


def largest_differences(compared: ComparedCase, most: int = MOST_SAMPLES) -> list[Loser]:
    """The samples that differ most, in either direction, each once; positive is better."""
    first, second = compared.first.record, compared.second.record
    if first is None or second is None or second.sizes or second.answers:
        return []
    sign = 1 if second.higher_is_better else -1
    differences: dict[str, Loser] = {}
    for part, scores in second.scores.items():
        before = first.scores.get(part, {})
        for name in scores.keys() & before.keys():
            change = round(sign * (scores[name] - before[name]), 6)
            differences[name] = Loser(name, before[name], scores[name], change)
    ordered = sorted(differences.values(), key=lambda loser: (-abs(loser.difference), loser.sample))
    return [loser for loser in ordered if loser.difference][:most]


def beside(
    result: CaseResult, compared: ComparedCase, first: str, chains: list[ChainShown], missing: str
) -> CaseResult:
    """A case of the second run as the page shows its chains. first: name of the other run.

    missing: why not all chains are shown; empty where they are.
    """
    judgement = dataclasses.replace(
        result.judgement, verdict=Verdict(compared.verdict), reference=first
    )
    shown = msgspec.structs.replace(
        result.shown, reference_chains=missing, chains=chains, median=None
    )
    return msgspec.structs.replace(result, judgement=judgement, shown=shown, accepted=False)


def how_to_get(
    chains: Sequence[ChainShown],
    names: tuple[str, str],
    results: Sequence[CaseResult],
    stores: Sequence[str],
) -> str:
    """Why not all chains are shown and the commands that make them; empty where they are.

    names, results: of both runs, and their cases.
    stores: in which they were looked for.
    """
    sides = ([chain.baseline_links for chain in chains], [chain.links for chain in chains])
    commands = []
    parts = []
    for name, links, result in zip(names, sides, results, strict=True):
        lacking = sum(not link for link in links)
        if lacking:
            parts.append(f"{lacking} of {len(links)} chains of {name}")
            module = result.nodeid.partition("::")[0]
            store = [f"--cep-store={text}" for text in stores[:1] if not is_url(text)]
            model = {} if result.measurement is None else result.measurement.model
            role = model.get("role", "")
            option = f"--cep-{role if role in ROLE_NAMES else 'model'}={model.get('spec', '')}"
            commands.append(shlex.join(["pytest", module, option, *store]))
    if not parts:
        return ""
    return (
        f"Not in {' or '.join(stores) or 'a store, of which none is here'}: {', '.join(parts)}. "
        "Measure that model with the store, then repeat the comparison:\n"
        + " && ".join(commands)
        + "\n"
        "Or name a store that has them: --store=DIR, or --store=URL"
    )


def suite_file_of(result: CaseResult, files: Sequence[Path]) -> Path:
    """The file of a case's suite: of those that were named, else beside the test that judged it.

    Raises SpecError where there is none.
    """
    folder = Path(result.nodeid.partition("::")[0]).parent
    inside = folder.resolve().is_relative_to(Path.cwd().resolve())  # a report may name any path
    near = sorted(folder.glob("*.toml")) if inside else []
    for path in (*files, *near):
        try:
            if load_suite(path).name == result.suite:
                return path
        except CepError:  # another kind of file, or a suite that is written wrongly
            continue
    raise SpecError(
        f"the file of suite {result.suite!r} is not beside {result.nodeid.partition('::')[0]!r}: "
        "run the command where pytest ran, or name it with --suite-file"
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
    comparison: RunComparison,
    results: Mapping[str, Sequence[CaseResult]],
    options: ChainOptions,
    store: Store,
) -> list[CaseResult]:
    """The cases of a comparison that differ most, with chains of both runs.

    results: of each run, by its name.
    Where chains cannot be shown the case says why.
    """
    runs = comparison.first.name, comparison.second.name
    by_key = [
        {str(CaseKey(case.suite, case.part, case.metric)): case for case in results[name]}
        for name in runs
    ]
    return [
        _case(compared, (by_key[0][case], by_key[1][case]), runs, options, store)
        for compared in _chosen(comparison)
        if (case := compared.first.case)
    ]


def _chosen(comparison: RunComparison) -> Iterator[ComparedCase]:
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
    try:
        path = suite_file_of(second, options.files)
        with importable([path]):
            chains = _suite_chains(path, compared, options, store)
    except CepError as error:
        return beside(second, compared, first, [], f"Chains cannot be shown: {error}")
    return beside(
        second, compared, first, chains, how_to_get(chains, names, results, options.stores)
    )
