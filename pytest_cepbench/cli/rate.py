"""`cepbench rate ask`: ask people on pages of this machine."""

from __future__ import annotations

import re
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

import msgspec

from pytest_cepbench.cli.arguments import people_names, suite_file
from pytest_cepbench.cli.output import tell
from pytest_cepbench.errors import MissingDependencyError, SpecError
from pytest_cepbench.option_values import HOST, bind
from pytest_cepbench.ratings.folder import STUDY, read_ratings
from pytest_cepbench.ratings.items import SUFFIX, check_study, read_items
from pytest_cepbench.ratings.known_items import begin_study
from pytest_cepbench.ratings.live_study import LiveStudy
from pytest_cepbench.ratings.records import Study, Task
from pytest_cepbench.report.number_format import counted

_EVERY = ("0.0.0.0", "::")  # noqa: S104 - to refuse them alone

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


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
    ratings = read_ratings(path)
    shown = f"[{host}]" if ":" in host else host  # pages have addresses of IPv6 in brackets
    with LiveStudy(ratings) as live, bind(arguments.port, host) as listener:
        for remark in live.remarks.lines:
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


_OF_NEW = {
    "kind": "--kind", "out": "--out", "annotators": "--annotators", "overlap": "--overlap",
    "seed": "--seed", "samples": "--samples", "reports": "--report", "data": "--data",
    "store": "--store",
}  # fmt: skip
"""Options of a study that is new, and how they are written."""


def run(arguments: Namespace) -> int:
    """Write a study where it is new, and serve it; exit codes as in `main`."""
    folder: Path = arguments.target
    if (folder / STUDY).is_file():
        given = [o for name, o in _OF_NEW.items() if getattr(arguments, name) not in (None, [])]
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
    target: Path = arguments.target
    people = people_names("3") if arguments.annotators is None else arguments.annotators
    overlap = min(2, len(people)) if arguments.overlap is None else arguments.overlap
    study = Study(kind=task, annotators=people, overlap=overlap, seed=arguments.seed or 0)
    check_study(study)
    describes_drawings = False
    if target.suffix != SUFFIX:  # else they are items of one's own
        from pytest_cepbench.cli.rated_runs import RatedSource, rated_items
        from pytest_cepbench.studies.rated_items import ItemDraw
        from pytest_cepbench.suites import load_suite, role_assignment

        suite = load_suite(suite_file(target))
        describes_drawings = task == "describe" and role_assignment.describes_drawings(suite)
        source = RatedSource(
            arguments.reports, arguments.store or [".cepbench/store"], arguments.baselines,
            dict(arguments.data), draw=ItemDraw(arguments.samples, study.seed),
        )  # fmt: skip
        rated = rated_items(task, target, source)
        for remark in rated.remarks:
            tell(remark)
        items, images, sources = rated.items, rated.images, rated.sources
        study = msgspec.structs.replace(
            study, suite=suite.name, probability=rated.probability, population=rated.population
        )
    else:
        if arguments.samples is not None or arguments.reports:
            raise SpecError(
                "--samples and --report are of suites: a file of items is asked as it is"
            )
        own = read_items(target, task)
        items, images, sources = own.items, own.images, own.sources
    short = begin_study(arguments.out, study, items, images, sources)
    tell(f"{arguments.out}: {counted(len(items), 'item')} for {counted(len(people), 'annotator')}")
    if short:
        tell(short)
    if describes_drawings:  # said before people begin: it cannot be gated with what they write
        tell(
            "this suite describes drawings as well, which people do not see: for a gate with "
            "people as describers, ask about a suite of one iteration, such as "
            f"{role_assignment.ONE_ITERATION}"
        )
