"""`cepbench prune`: find the baselines that no case has any more, and delete them when asked to."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.cli.output import INTERRUPTED, NOT_DONE, Section, complain, show
from pytest_cepbench.errors import EndedError, SpecError
from pytest_cepbench.evaluation.project_baselines import list_baselines
from pytest_cepbench.evaluation.run_report import RunReport, read_report
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.replacement import replace_files


def run(arguments: Namespace) -> int:
    """List, and delete where asked to; exit codes as in `main`."""
    root: Path = arguments.baselines
    report = read_report(arguments.results)
    if not root.is_dir():
        raise SpecError(f"no folder of baselines at {str(root)!r}: give it with --baselines DIR")
    keys: dict[str, set[CaseKey]] = {}
    for case in report.cases:
        keys.setdefault(case.suite, set()).add(case.key)
    refusals = list(_refusals(report))
    for refusal in refusals:
        complain(f"nothing is pruned: {refusal}", NOT_DONE)
    if refusals:
        return NOT_DONE
    try:
        unused, left = list_baselines(root, keys)
    except OSError as error:
        raise EndedError(f"{str(root)!r} cannot be read: {error.strerror}") from error
    lines = [f"{path}: {key}" for path, key in unused] or ["every baseline has its case"]
    lines += [f"left: {reason}" for reason in left]
    page = [Section(f"baselines below {root} that no case has", lines)]
    if not arguments.delete or not unused:
        show(page, *(["nothing deleted: say --delete"] if unused else []))
        return 0
    show(page)
    paths = [path for path, _ in unused]
    try:
        replace_files(root, dict.fromkeys(paths))  # all or none
    except KeyboardInterrupt:
        raise EndedError("interrupted: nothing is deleted", INTERRUPTED) from None
    show([], f"{len(paths)} of {len(paths)} deleted: commit that")
    return 0


def _refusals(report: RunReport) -> Iterator[str]:
    """Reasons why the results do not show all cases, a sentence each; none where they do."""
    if report.incomplete is not None:
        yield f"the run is incomplete: {report.incomplete}; run it again"
        return
    if not report.cases:
        yield "the run judged no case"
    for suite in dict.fromkeys(case.suite for case in report.cases):
        judged = len({case.key for case in report.cases if case.suite == suite})
        sizes = {case.of for case in report.cases if case.suite == suite}
        if sizes != {judged}:
            whole = " or ".join(map(str, sorted(sizes)))
            yield (
                f"suite {suite} has {whole} cases and the run judged {judged}: run all of it, "
                "without -k, -m, named tests or markers that choose cases"
            )
