"""`cepbench accept`: take what a run measured as baselines, from its report alone."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.cli.output import INTERRUPTED, NOT_DONE, Section, Table, complain, show
from pytest_cepbench.errors import (
    BaselineError,
    EndedError,
    SpecError,
    WriteError,
    few_of,
    unknown_name,
)
from pytest_cepbench.evaluation.run_report import (
    RunReport,
    contradictions,
    read_report,
    refusals,
)
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.gate.baseline import (
    BaselineChange,
    anchor_path,
    apply,
    baseline_path,
    propose,
    read_baseline,
    record_of,
    usable_baseline,
)
from pytest_cepbench.gate.measurement import differing_fields
from pytest_cepbench.gate.sensitivity import remarks_on_accepting
from pytest_cepbench.report.number_format import counted, number
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.store.answers import keys_of_answers
from pytest_cepbench.store.database import INDEX, open_readonly

Cases = Mapping[CaseKey, Sequence[CaseResult]]
"""The cases that are to be accepted, each with all results that the run has of it."""

_BEST_OF_SEVERAL = (
    "chosen as the best of several checkpoints? Then these scores are lucky ones, and equal "
    "checkpoints will seem worse: set a fresh [chain] seed in the suite, and accept a run under it"
)


def run(arguments: Namespace) -> int:
    """Show what changes and write it; exit codes as in `main`."""
    report = read_report(arguments.results)
    reason = arguments.reason.strip()  # a reviewer will read it
    if not reason:
        raise SpecError("--reason is empty: say in a sentence why these numbers are accepted")
    cases = _chosen(report, arguments.case)
    root: Path = arguments.baselines
    accepted = {"reason": reason, "results": report.digest}
    # That a report contradicts itself counts where nothing else does.
    refused = list(refusals(report, cases, insensitive=arguments.accept_insensitive))
    refused = refused or list(contradictions(report))
    for refusal in refused:
        complain(f"nothing is accepted: {refusal}", NOT_DONE)
    if refused:
        return NOT_DONE
    changes = list(_changes(cases, accepted, root, move_anchor=arguments.move_anchor))
    page = [_page(changes, cases, reason, root)]
    if not changes:
        show(page, "nothing changed")
    elif arguments.dry_run:
        show(page, _BEST_OF_SEVERAL, "nothing written: --dry-run")
    else:
        show(page, _BEST_OF_SEVERAL)
        _write(changes, arguments)
    return 0


def _chosen(report: RunReport, names: Sequence[str]) -> Cases:
    """Raises SpecError for a name that no case has, or cases of several suites."""
    results_of: dict[CaseKey, list[CaseResult]] = {}
    for case in report.cases:
        results_of.setdefault(case.key, []).append(case)
    chosen: dict[CaseKey, list[CaseResult]] = {}
    for name in names:
        keys = [key for key in results_of if key.matches(name)]
        if not keys:
            raise SpecError(f"--case {name!r}: {unknown_name('case', name, map(str, results_of))}")
        if len(keys) > 1 and all(key.within == name for key in keys):
            suites = ", ".join(map(str, keys))
            raise SpecError(f"--case {name!r}: that is in several suites: say which of {suites}")
        chosen |= {key: results_of[key] for key in keys}
    return chosen if names else results_of


def _changes(
    cases: Cases, accepted: dict[str, str], root: Path, *, move_anchor: bool
) -> Iterator[BaselineChange]:
    for key, (first, *_) in cases.items():
        assert first.measurement is not None  # or the case was refused
        measured = record_of(first.measurement)
        value = measured.fresh.value  # of the scores, whatever else is there
        after = replace(measured, value=value, accepted=accepted)
        change = propose(key, after, root)
        if move_anchor:
            moved = propose(key, after, root, move_anchor=True)
            if change is None and moved is not None:
                # The baseline stays: only an anchor that says something else changes.
                anchor = usable_baseline(anchor_path(root, key), key)
                same = anchor is not None and anchor.scores == after.scores
                moved = None if same or moved.anchor != "moved" else moved
            change = moved
        if change is not None:
            yield change


# -- what is shown ---------------------------------------------------------------------------------


def _page(changes: Sequence[BaselineChange], cases: Cases, reason: str, root: Path) -> Section:
    """Before and after of what changes, and what a reviewer should know beside."""
    blocks: list[str | Table] = [f"reason: {reason}"]
    models = [f"{c.after.model.get('role')} {c.after.model.get('spec')}" for c in changes]
    blocks += [f"measured of: {model}" for model in dict.fromkeys(models)]
    if changes:
        rows = tuple(_row(change, cases[change.key][0], root) for change in changes)
        head = ("case", "before", "after", "difference", "n", "verdict", "anchor")
        blocks.append(Table(head, rows))
    blocks += _remarks(changes, root)
    cases_of: dict[str, list[CaseKey]] = {}
    for change in changes:
        for remark in remarks_on_accepting(change.after):
            cases_of.setdefault(remark, []).append(change.key)
    blocks += [f"warning: {few_of(map(str, keys))}: {remark}" for remark, keys in cases_of.items()]
    same = len(cases) - len(changes)
    if same:
        blocks.append(f"unchanged: {counted(same, 'case')}")
    return Section(f"accepting into {root}", blocks)


def _row(change: BaselineChange, result: CaseResult, root: Path) -> tuple[str, ...]:
    before, after = change.before, change.after
    n = f"{after.n}" if before is None or before.n == after.n else f"{before.n} -> {after.n}"
    there = baseline_path(root, change.key).exists()
    difference = None  # of two that mean different things there is none
    if before is not None and not differing_fields(before.identity, after.identity):
        sign = 1 if after.higher_is_better else -1
        difference = sign * (after.value - before.value) + 0.0  # the sum turns -0.0 into 0.0
    values = number(after.value), number(difference, signed=True)
    if change.replaced_answers is not None:  # a win rate: against themselves all score one half
        values = f"{change.replaced_answers} answers replaced", "-"
    return (
        str(change.key),
        ("unusable" if there else "new") if before is None else number(before.value),
        *values,
        n,
        result.verdict,
        "-" if change.anchor == "none" else change.anchor,
    )


def _remarks(changes: Sequence[BaselineChange], root: Path) -> Iterator[str]:
    """Lines on changes that the table has no room for."""
    others: dict[str, list[CaseKey]] = {}
    for change in changes:
        before, after = change.before, change.after
        if before is None:
            try:
                read_baseline(baseline_path(root, change.key), change.key)
            except BaselineError as error:
                yield f"replaced, since it cannot be used: {error}"
        elif differ := differing_fields(before.identity, after.identity):
            others.setdefault(", ".join(differ), []).append(change.key)
    for fields, keys in others.items():
        yield f"not comparable with what was accepted before ({fields}): {few_of(map(str, keys))}"
    steps = {change.anchor for change in changes}
    if "frozen" in steps:
        yield (
            "frozen: what was accepted before stays as the anchor that all later steps are held to"
        )
    if "moved" in steps:
        yield "moved: the anchor becomes what is accepted now; the steps until here are forgotten"


def _write(changes: Sequence[BaselineChange], arguments: Namespace) -> None:
    """Write the files, all or none, and say where the answers lie that they name."""
    root: Path = arguments.baselines
    try:
        written = apply(changes, root)
    except WriteError as error:
        raise EndedError(
            f"nothing is accepted: {error}; run the same command again then"
        ) from error
    except KeyboardInterrupt:
        raise EndedError("nothing is accepted: interrupted", INTERRUPTED) from None
    accepted: dict[str, set[str]] = {}
    for change in changes:
        accepted.setdefault(change.key.suite, set()).update(change.after.answers.values())
    lines = [f"{counted(len(written), 'baseline')} written below {root}: commit them"]
    folder: Path = arguments.store
    for suite, digests in accepted.items():  # of which a baseline has the digests alone
        digests.discard("")
        if not digests:
            continue
        here = 0
        if (folder / INDEX).is_file():
            with open_readonly(folder) as read:
                here = len(keys_of_answers(read, digests))
        place = folder if here == len(digests) else "DIR (the store of the run)"
        lines.append(
            f"{here} of {len(digests)} accepted answers of {suite} lie in the store {folder}: "
            f"cepbench store export --answers SUITE --store {place} keeps them beside the baselines"
        )
    show([], *lines)
