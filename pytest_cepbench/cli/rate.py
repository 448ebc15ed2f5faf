"""`cepbench rate ask`: items of runs or of a file, asked of people on pages of this machine."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from pytest_cepbench.cli.arguments import people_names, suite_file
from pytest_cepbench.cli.output import tell
from pytest_cepbench.errors import MissingDependencyError, SpecError, SuiteError
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.gate import CaseKey, Measurement
from pytest_cepbench.gate.baseline import baseline_path, read_baseline, record_of
from pytest_cepbench.models import RoleName
from pytest_cepbench.option_values import HOST, bind, is_url, split_name
from pytest_cepbench.ratings.folder import STUDY, check_study, read_ratings
from pytest_cepbench.ratings.items import SUFFIX, begin_study, read_items
from pytest_cepbench.ratings.live_study import LiveStudy
from pytest_cepbench.ratings.records import Study, Task
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.store import Store
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.studies.rated_items import (
    RatedItems,
    RatedRun,
    answer_items,
    caption_pairs,
    chain_grades,
    described_images,
    seeds_of,
)
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite, load_suite
from pytest_cepbench.suites.chain_run import require_chains
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.role_assignment import ONE_ITERATION, describes_drawings

ACCEPTED = "accepted"
"""What the accepted answers are called, where one run is compared with them."""

_IN_NAME = "shapes:"
"""In the place of every model of a suite: what is rated was made by the recorded ones, none of
whose specs is resolved, and no encoder reads it."""

_EVERY = ("0.0.0.0", "::")  # noqa: S104 - to refuse them alone

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")

_OF_NEW = (
    *("kind", "out", "annotators", "overlap", "seed"),
    *("samples", "report", "data", "store"),
)
"""Options of a study that is new."""


def run_ask(arguments: Namespace) -> int:
    """Write a study where it is new, and serve it; exit codes as in `main`."""
    folder: Path = arguments.target
    if (folder / STUDY).is_file():
        given = [f"--{name}" for name in _OF_NEW if getattr(arguments, name) not in (None, [])]
        if given:
            raise SpecError(
                f"{str(folder)!r} is a study already, which goes on as it was written: drop "
                f"{', '.join(given)}, or name a suite and another folder with --out"
            )
    else:
        if arguments.kind is None or arguments.out is None:
            raise SpecError(
                f"{str(folder)!r} is no ratings folder: of a suite or a file of items a new one is "
                "written, which needs --kind KIND and --out ratings/NAME"
            )
        folder = arguments.out
        if (folder / STUDY).is_file():
            raise SpecError(
                f"{str(folder)!r} is a study already: go on with cepbench rate ask {folder}, or "
                "name another folder with --out"
            )
        _write_new(arguments)
    if not arguments.only_write:
        serve_ratings(folder, arguments)
    return 0


def _write_new(arguments: Namespace) -> None:
    """Write a new study of a suite or of a file of items. Raises kinds of CepError."""
    task: Task = arguments.kind
    people = people_names("3") if arguments.annotators is None else arguments.annotators
    overlap = min(2, len(people)) if arguments.overlap is None else arguments.overlap
    study = Study(kind=task, annotators=people, overlap=overlap, seed=arguments.seed or 0)
    check_study(study)
    if arguments.target.suffix == SUFFIX:
        if arguments.samples is not None or arguments.report:
            raise SpecError(
                "--samples and --report are of suites: a file of items is asked as it is"
            )
        suite = None
        items, images, sources = read_items(arguments.target, task)
    else:
        suite = load_suite(suite_file(arguments.target))
        rated = RatedItems(task, suite.name, arguments.samples, study.seed)
        with importable([suite.file]):
            _rate_suite(rated, suite, arguments)
        for remark in rated.remarks:
            tell(remark)
        items, images, sources = rated.items, rated.images, rated.sources
        study = msgspec.structs.replace(
            study, suite=suite.name, probability=rated.probability, population=rated.population
        )
    short = begin_study(arguments.out, study, items, images, sources)
    asked = len({item.item for item in items})  # of lines that are the same one is asked
    tell(f"{arguments.out}: {counted(asked, 'item')} for {counted(len(people), 'annotator')}")
    if short:
        tell(short)
    # Said before people begin: it cannot be gated with what they write.
    if suite is not None and task == "describe" and describes_drawings(suite):
        tell(
            "this suite describes drawings as well, which people do not see: for a gate with "
            f"people as describers, ask about a suite of one iteration, such as {ONE_ITERATION}"
        )


def _rate_suite(made: RatedItems, suite: Suite, arguments: Namespace) -> None:
    """Make the items of a study on a suite.

    Raises kinds of CepError for what is wrong with the options, the runs or the store.
    """
    kind, data = made.task, dict(arguments.data)
    if kind == "describe":
        if arguments.report:
            raise SpecError("--report is of outputs that are rated: the kind describe has none")
        described_images(made, load_data(suite, data))
        return
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
    place: str = arguments.store or ".cepbench/store"
    if not is_url(place) and not Path(place).is_dir():
        raise SpecError(f"--store {place!r}: there is no such store; give that of the runs")
    runs = list(rated_runs(kind, suite, arguments.report, arguments.baselines))
    record = runs[0].record
    # A local store is opened as by a run, which writes when its results were used last; of a shared
    # one nothing is written.
    local = not is_url(place) and (Path(place) / INDEX).exists()
    shared = [] if local else [place if is_url(place) else Path(place).absolute()]
    with (
        TemporaryDirectory(prefix="cepbench-rate-") as folder,
        Store(Path(place).absolute() if local else Path(folder), shared) as store,
    ):
        if answers:
            seeds = max(seeds_of(run.record) for run in runs)
            answer_items(made, load_data(suite, data).repeated(seeds), runs, store)
            return
        others: dict[RoleName, str] = dict.fromkeys(("encoder", "detector", "vqa"), _IN_NAME)
        encoders = dict.fromkeys(suite.table.encoders, _IN_NAME)
        choices = RoleChoices(_IN_NAME, "unified", others, encoders)
        seeds = seeds_of(record)
        prepared = load_prepared_suite(suite.file, choices, data, seeds=seeds)
        chains = require_chains(prepared.run(ModelPool(store)), "a rating of chains")
        rate = chain_grades if kind == "grades" else caption_pairs
        rate(made, chains, prepared.cases, runs, store)


def rated_runs(
    kind: Task, suite: Suite, reports: Sequence[str], baselines: Path
) -> Iterator[RatedRun]:
    """The runs of `[NAME=]REPORT`, all by the same case; no store is read.

    Of the kind `pair` the accepted answers stand beside one run alone. Raises kinds of CepError for
    reports that are not of the suite, or have nothing to rate.
    """
    named = [split_name(text) for text in reports]
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
        baseline = read_baseline(baseline_path(baselines, case), case)
        if baseline is None or not baseline.answers:
            raise SpecError(
                f"{str(baselines)!r} has no accepted answers of {case}: give a second run with "
                "--report, or the folder with --baselines"
            )
        yield RatedRun(ACCEPTED, baseline)


def _measured(path: Path, suite: Suite) -> dict[str, Measurement]:
    """What a run measured of the suite, by case. Raises SpecError for a run of another suite."""
    report = read_report(path)
    records = {
        case.measurement.case: record_of(case.measurement)
        for case in report.cases
        if case.suite == suite.name and case.measurement is not None
    }
    if not records:
        others = sorted({case.suite for case in report.cases}) or ["none"]
        raise SpecError(
            f"{path} is of the suite {', '.join(others)}, and {suite.name!r} is expected"
        )
    return records


def serve_ratings(path: Path, arguments: Namespace) -> None:
    """Serve a study until the process is interrupted.

    path: its folder.
    arguments: port, host, name (of `--name`).
    Raises DatasetError, WriteError, SpecError and MissingDependencyError.
    """
    host: str = arguments.host
    for name in arguments.name:
        if not _NAME.fullmatch(name):
            raise SpecError(
                f"--name {name!r}: a host's name or address is expected, without port or wildcard"
            )
    if host in _EVERY and not arguments.name:
        raise SpecError(
            f"--host {host} listens on every address of this machine: say with --name by which one "
            "browsers call it, since requests for others are refused"
        )
    try:
        from pytest_cepbench.ratings.app import serve
    except ImportError as error:
        raise MissingDependencyError(
            'cepbench rate needs packages: pip install "pytest-cepbench[pages]"'
        ) from error
    shown = f"[{host}]" if ":" in host else host  # pages have addresses of IPv6 in brackets
    with LiveStudy(read_ratings(path)) as live, bind(arguments.port, host) as listener:
        for remark in live.remarks:
            tell(remark)
        called = arguments.name[0] if arguments.name else shown
        base = f"http://{called}:{listener.getsockname()[1]}"
        if host != HOST:
            tell(
                f"listening on {host}: whoever reaches an address below can answer in that name, "
                "and what is sent is not encrypted"
            )
        for token, annotator in live.people.items():
            tell(f"{annotator}: {base}/a/{token}/")
        tell(f"serving {path} (Ctrl-C ends it; start it again to go on)")
        with suppress(KeyboardInterrupt):  # the way to end it
            serve(live, listener, [shown, HOST, "localhost", *arguments.name])
