"""`cepbench prune`: find the baselines that no case has any more, and delete them when asked to."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.cli.output import INTERRUPTED, NOT_DONE, Section, complain, show
from pytest_cepbench.cli.project_files import case_of_file, kind_of
from pytest_cepbench.cli.results import RunReport, key_of, read_report
from pytest_cepbench.errors import SpecError, WriteError, unknown_name
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.gate.baseline import ANCHORS, anchor_path, baseline_path
from pytest_cepbench.gate.series import SERIES
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.suites.definition import NAME
from pytest_cepbench.suites.judge_cards import JUDGE_CARDS


@dataclass(frozen=True)
class BaselineListing:
    """Contents of a folder of baselines.

    unused: baselines and anchors of cases that are no more, with their cases.
    left: what is not touched, with the reason.
    elsewhere: folders of suites that nothing is known of.
    """

    unused: tuple[tuple[Path, CaseKey], ...]
    left: tuple[str, ...]
    elsewhere: tuple[str, ...]


def run(arguments: Namespace) -> int:
    """List, and delete where asked to; exit codes as in `main`."""
    root: Path = arguments.baselines
    report = read_report(arguments.results)
    gone = _removed_suites(arguments.suite, report, root)
    refusals = list(_refusals(report))
    if refusals:
        for refusal in refusals:
            complain(f"nothing is pruned: {refusal}", NOT_DONE)
        return NOT_DONE
    keys: dict[str, set[CaseKey]] = {name: set() for name in gone}
    for case in report.cases:
        keys.setdefault(case.suite, set()).add(key_of(case))
    try:
        listing = _list_baselines(root, keys)
    except OSError as error:
        return complain(f"{str(root)!r} cannot be read: {error.strerror}", NOT_DONE)
    if not arguments.delete or not listing.unused:
        remedy = () if not listing.unused else ("nothing deleted: say --delete",)
        show([_page(listing, root)], *remedy)
        return 0
    show([_page(listing, root)])
    return _delete([path for path, _ in listing.unused], root)


def _removed_suites(names: Sequence[str], report: RunReport, root: Path) -> tuple[str, ...]:
    """The suites that are gone altogether. Raises SpecError for names that cannot be meant so."""
    if not root.is_dir():
        raise SpecError(f"no folder of baselines at {str(root)!r}: give it with --baselines DIR")
    judged = {case.suite for case in report.cases}
    for name in names:
        if name in judged:
            raise SpecError(
                f"--suite {name!r}: the results have cases of it, so it is not gone; its unused "
                "baselines are found without this option"
            )
        if not (NAME.fullmatch(name) and _is_folder(root / name)):
            known = [path.name for path in root.iterdir() if _is_folder(path)]
            raise SpecError(f"--suite: {unknown_name('suite', name, known)}")
    return tuple(dict.fromkeys(names))


def _refusals(report: RunReport) -> Iterator[str]:
    """Reasons why the results do not show all cases, a sentence each; none where they do."""
    if report.incomplete is not None:
        yield f"the run is incomplete: {report.incomplete}; run it again"
        return
    if not report.cases:
        yield "the run judged no case"
    for suite in dict.fromkeys(case.suite for case in report.cases):
        judged = len({key_of(case) for case in report.cases if case.suite == suite})
        sizes = {case.of for case in report.cases if case.suite == suite}
        if sizes != {judged}:
            whole = " or ".join(map(str, sorted(sizes)))
            yield (
                f"suite {suite} has {whole} cases and the run judged {judged}: run all of it, "
                "without -k, -m, named tests or markers that choose cases"
            )


def _list_baselines(root: Path, keys: Mapping[str, set[CaseKey]]) -> BaselineListing:
    """Sort out what lies below the folder. Raises OSError where it cannot be listed."""
    unused: list[tuple[Path, CaseKey]] = []
    left: list[str] = []
    elsewhere = []
    for folder in sorted(root.iterdir()):
        if folder.name not in keys:
            if folder.name in (JUDGE_CARDS, SERIES):  # of no suite
                continue
            if _is_folder(folder) and any(folder.iterdir()):
                elsewhere.append(folder.name)
        elif not _is_folder(folder):
            left.append(f"{folder}: {kind_of(folder)}, not a folder")
        else:
            baselines = {baseline_path(root, key) for key in keys[folder.name]}
            anchors = {anchor_path(root, key) for key in keys[folder.name]}
            for path in _entries(folder):
                if path in baselines | anchors:
                    continue
                key = case_of_file(path, folder.name)
                if isinstance(key, str):
                    left.append(f"{path}: {key}")
                else:
                    unused.append((path, key))
    return BaselineListing(tuple(unused), tuple(left), tuple(elsewhere))


def _entries(folder: Path) -> Iterator[Path]:
    """Entries of a suite's folder and of that of its anchors; nothing behind a symbolic link."""
    for path in sorted(folder.iterdir()):
        if path.name == ANCHORS and _is_folder(path):
            yield from sorted(path.iterdir())
        else:
            yield path


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _page(listing: BaselineListing, root: Path) -> Section:
    lines = [f"{path}: {key}" for path, key in listing.unused] or ["every baseline has its case"]
    lines += [f"left: {reason}" for reason in listing.left]
    lines += [
        f"left: {root / name}: the results have no case of this suite; where it is gone, say "
        f"--suite {name}"
        for name in listing.elsewhere
    ]
    return Section(f"baselines below {root} that no case has", tuple(lines))


def _delete(paths: Sequence[Path], root: Path) -> int:
    """Delete files, all or none."""
    try:
        replace_files(root, dict.fromkeys(paths))
    except WriteError as error:
        return complain(str(error), NOT_DONE)
    except KeyboardInterrupt:
        return complain("interrupted: nothing is deleted", INTERRUPTED)
    show([], f"{len(paths)} of {len(paths)} deleted: commit that")
    return 0
