"""From the reports of runs to items for people: which suite, which samples, from which store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.cli.arguments import suite_file
from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.gate import CaseKey, Measurement
from pytest_cepbench.gate.baseline import as_accepted, baseline_path, read_baseline
from pytest_cepbench.models import RoleName
from pytest_cepbench.option_values import is_url, split_name
from pytest_cepbench.ratings.records import Task
from pytest_cepbench.store import Store
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.studies.rated_items import (
    ItemDraw,
    RatedItems,
    RatedRun,
    answer_grades,
    answer_pairs,
    caption_pairs,
    chain_grades,
    described_images,
    seeds_of,
)
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite, load_suite
from pytest_cepbench.suites.chain_run import require_chains
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import Suite

ACCEPTED = "accepted"
"""What the accepted answers are called, where one run is compared with them."""

_IN_NAME = "shapes:"
"""In the place of every model of a suite: what is rated was made by the recorded ones, none of
whose specs is resolved, and no encoder reads it."""


@dataclass(frozen=True)
class RatedSource:
    """Where items come from, as options name it.

    reports: `[NAME=]REPORT` of each run.
    stores: folders and URLs that have the runs' answers or chains.
    baselines: folder of accepted baselines, whose answers one run alone is compared with.
    data: data set name -> path or URL.
    draw: which samples.
    """

    reports: Sequence[str] = ()
    stores: Sequence[str] = (".cepbench/store",)
    baselines: Path = Path("baselines")
    data: Mapping[str, DataPlace] = field(default_factory=dict)
    draw: ItemDraw = field(default_factory=ItemDraw)


def rated_items(kind: Task, path: Path, source: RatedSource) -> RatedItems:
    """The items of a study on a suite: their images, sources and how they were drawn.

    kind: pair, grades, caption or describe. path: the suite's file or folder.
    Raises kinds of CepError for what is wrong with the options, the runs or the stores.
    """
    file = suite_file(path)
    with importable([file]):
        suite = load_suite(file)
        if kind == "describe":
            return described_images(suite.name, load_data(suite, source.data), source.draw)
        if kind == "verify":
            raise SpecError(
                "items of the kind verify are of a data set: `cepbench dataset verify` makes them"
            )
        answers = suite.answer_plan is not None
        if (kind == "pair") is not answers and kind != "grades":
            other = "caption" if kind == "pair" else "pair"
            what = "chains" if kind == "pair" else "interleaved answers"
            raise SuiteError(
                f"suite {suite.name!r} is of {what}: the kind {other} or grades is meant for it"
            )
        for text in source.stores:
            if not is_url(text) and not Path(text).is_dir():
                raise SpecError(f"--store {text!r}: there is no such store; give that of the runs")
        runs = list(_runs(kind, suite, source))
        with store_of_runs(source.stores) as store:
            if answers:
                seeds = max(seeds_of({CaseKey.parse(run.record.case): run.record}) for run in runs)
                dataset = load_data(suite, source.data).repeated(seeds)
                make = answer_pairs if kind == "pair" else answer_grades
                return make(suite.name, dataset, runs, store, source.draw)
            record = runs[0].record
            others: dict[RoleName, str] = {
                "encoder": _IN_NAME,
                "detector": _IN_NAME,
                "vqa": _IN_NAME,
            }
            encoders = dict.fromkeys(suite.table.encoders, _IN_NAME)
            choices = RoleChoices(_IN_NAME, "unified", others, encoders)
            seeds = seeds_of({CaseKey.parse(record.case): record})
            prepared = load_prepared_suite(file, choices, source.data, seeds=seeds)
            chains = require_chains(prepared.run(ModelPool(store)), "a rating of chains")
            rate = chain_grades if kind == "grades" else caption_pairs
            return rate(chains, prepared.cases, runs, store, source.draw)


@contextmanager
def store_of_runs(locations: Sequence[str]) -> Iterator[Store]:
    """A store that has what those at some places have: at most one local store, and shared ones.

    A local store is opened as by a run, which writes when its results were used last; of shared
    ones nothing is written.
    Raises StoreError, and SpecError for several local ones.
    """
    places = [text if is_url(text) else Path(text).absolute() for text in locations]
    local = [place for place in places if isinstance(place, Path) and (place / INDEX).exists()]
    if len(local) > 1:
        raise SpecError(f"--store: {local[0]} and {local[1]} are local stores: give one of them")
    shared = [place for place in places if place not in local]
    with (
        TemporaryDirectory(prefix="cepbench-rate-") as folder,
        Store(local[0] if local else Path(folder), shared) as store,
    ):
        yield store


def named_runs(kind: Task, path: Path, source: RatedSource) -> list[RatedRun]:
    """The runs that the reports are of, as `rated_items` names them; no store is read.

    Raises kinds of CepError for reports that are not of the suite, or have nothing to rate.
    """
    runs = _runs(kind, load_suite(suite_file(path)), source)
    return list(islice(runs, len(source.reports)))


def _runs(kind: Task, suite: Suite, source: RatedSource) -> Iterator[RatedRun]:
    """The runs, all by the same case; the accepted answers beside one run of answers alone."""
    named = [split_name(text) for text in source.reports]
    if not named:
        raise SpecError(
            f"items of the kind {kind} are made of runs: give --report REPORT for each of them"
        )
    measured = [_measured(Path(path), suite) for _, path in named]
    common = set.intersection(*map(set, measured))
    battles = [key for key in common if all(records[key].answers for records in measured)]
    if suite.answer_plan is not None and not battles:
        raise SpecError(
            f"the runs of suite {suite.name!r} have no win rate against accepted answers in common "
            "whose answers could be rated"
        )
    if not common:
        raise SpecError(f"the runs of suite {suite.name!r} have no case in common")
    sizes = {key: sum(map(len, record.scores.values())) for key, record in measured[0].items()}
    key = max(battles or common, key=lambda key: (sizes[key], key))
    for (name, _), records in zip(named, measured, strict=True):
        yield RatedRun(name or records[key].model.get("spec", "model"), records[key])
    if kind == "pair" and len(named) == 1:
        case = CaseKey.parse(key)
        baseline = read_baseline(baseline_path(source.baselines, case), case)
        if baseline is None or not baseline.answers:
            raise SpecError(
                f"{str(source.baselines)!r} has no accepted answers of {case}: give a second run "
                "with --report, or the folder with --baselines"
            )
        yield RatedRun(ACCEPTED, baseline)


def _measured(path: Path, suite: Suite) -> dict[str, Measurement]:
    """What a run measured of the suite, by case. Raises SpecError for a run of another suite."""
    report = read_report(path)
    records = {
        case.measurement.case: as_accepted(case.measurement)
        for case in report.cases
        if case.suite == suite.name and case.measurement is not None
    }
    if not records:
        others = sorted({case.suite for case in report.cases}) or ["none"]
        raise SpecError(
            f"{path} is of the suite {', '.join(others)}, and {suite.name!r} is expected"
        )
    return records
