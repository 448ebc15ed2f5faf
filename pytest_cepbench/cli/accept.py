"""`cepbench accept`: take what a run measured as baselines, from its report alone."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.cli.output import (
    INTERRUPTED,
    NOT_DONE,
    Section,
    Table,
    complain,
    show,
)
from pytest_cepbench.cli.remeasure import Remeasured, refuse_unused_options, remeasure
from pytest_cepbench.errors import BaselineError, EndedError, SpecError, WriteError, unknown_name
from pytest_cepbench.evaluation.run_report import (
    RunReport,
    contradictions,
    few_keys,
    key_of,
    read_report,
    refusals,
)
from pytest_cepbench.gate import CaseKey, Measurement
from pytest_cepbench.gate.acceptance import Change, apply, propose
from pytest_cepbench.gate.baseline import (
    anchor_path,
    as_accepted,
    baseline_path,
    read_baseline,
    usable_baseline,
)
from pytest_cepbench.gate.sensitivity import remarks_on_accepting
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.number_format import counted, number
from pytest_cepbench.store.answers import keys_of_answers
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.readonly import ReadonlyStore


def run(arguments: Namespace) -> int:
    """Show what changes and write it; exit codes as in `main`."""
    refuse_unused_options(arguments)
    report = read_report(arguments.results)
    reason = _checked_reason(arguments.reason)
    cases = _chosen(report, arguments.case)
    edited = list(contradictions(report))
    if _refuse(report, cases, edited, insensitive=arguments.accept_insensitive):
        return NOT_DONE
    root: Path = arguments.baselines
    accepted = {"reason": reason, "results": report.digest}
    if arguments.remeasure is not None:
        return _accept_again(arguments, report, remeasure(arguments, report, cases), accepted)
    changes = list(_changes(cases, accepted, root, move_anchor=arguments.move_anchor))
    page = _page(changes, cases, reason, root)
    if not changes:
        show([page], "nothing changed")
        return 0
    page = Section(page.title, (*page.blocks, _BEST_OF_SEVERAL))
    if arguments.dry_run:
        show([page], "nothing written: --dry-run")
        return 0
    show([page])
    _write(changes, arguments)
    return 0


_BEST_OF_SEVERAL = (
    "chosen as the best of several checkpoints? Then these scores are lucky ones, and equal "
    "checkpoints will seem worse: accept with --remeasure SUITE"
)


def _accept_again(
    arguments: Namespace, report: RunReport, remeasured: Remeasured, accepted: dict[str, str]
) -> int:
    """Accept what was measured again, and have the suite measure like that from now on."""
    if _refuse(report, remeasured.cases, (), insensitive=arguments.accept_insensitive):
        return NOT_DONE
    root: Path = arguments.baselines
    accepted = accepted | {"remeasured": remeasured.note}
    proposed = _changes(remeasured.cases, accepted, root, move_anchor=arguments.move_anchor)
    changes = list(remeasured.with_anchors(proposed))
    page = [_page(changes, remeasured.cases, accepted["reason"], root), *remeasured.sections()]
    if arguments.dry_run:
        show(page, "nothing written: --dry-run")
        return 0
    show(page)
    if changes:
        _write(changes, arguments)
    remeasured.write_suite()
    return 0


def _checked_reason(reason: str) -> str:
    """The reason, which a reviewer will read."""
    if not reason.strip():
        raise SpecError("--reason is empty: say in a sentence why these numbers are accepted")
    return reason.strip()


def _chosen(report: RunReport, names: Sequence[str]) -> dict[CaseKey, list[CaseResult]]:
    """The cases that are to be accepted, each with all results that the run has of it.

    Raises SpecError for a name that no case has, or cases of several suites.
    """
    results_of: dict[CaseKey, list[CaseResult]] = {}
    for case in report.cases:
        results_of.setdefault(key_of(case), []).append(case)
    if not names:
        return results_of
    chosen: dict[CaseKey, list[CaseResult]] = {}
    for name in names:
        keys = [key for key in results_of if key.matches(name)]
        if not keys:
            raise SpecError(f"--case {name!r}: {unknown_name('case', name, map(str, results_of))}")
        if len(keys) > 1 and all(key.within == name for key in keys):
            suites = ", ".join(map(str, keys))
            raise SpecError(f"--case {name!r}: that is in several suites: say which of {suites}")
        chosen |= {key: results_of[key] for key in keys}
    return chosen


def _refuse(
    report: RunReport,
    cases: Mapping[CaseKey, Sequence[CaseResult]],
    edited: Sequence[str],
    *,
    insensitive: bool,
) -> bool:
    """Complain of every reason to accept nothing; True where there is one.

    edited: in what the report contradicts itself, which counts where nothing else does.
    """
    found = list(refusals(report, cases, insensitive=insensitive))
    for refusal in found or edited:
        complain(f"nothing is accepted: {refusal}", NOT_DONE)
    return bool(found or edited)


def _changes(
    cases: Mapping[CaseKey, Sequence[CaseResult]],
    accepted: dict[str, str],
    root: Path,
    *,
    move_anchor: bool,
) -> Iterator[Change]:
    for key, (first, *_) in cases.items():
        assert first.measurement is not None  # or the case was refused
        measured = as_accepted(first.measurement)
        value = measured.fresh.value  # of the scores, whatever else is there
        after = replace(measured, value=value, accepted=accepted)
        change = propose(key, after, root)
        if change is None and move_anchor:
            change = _anchor_alone(key, after, root)
        elif move_anchor:
            change = propose(key, after, root, move_anchor=True)
        if change is not None:
            yield change


def _anchor_alone(key: CaseKey, after: Measurement, root: Path) -> Change | None:
    """Of a case whose baseline stays: only an anchor that says something else changes."""
    change = propose(key, after, root, move_anchor=True)
    if change is None or change.anchor != "moved":
        return None
    anchor = usable_baseline(anchor_path(root, key), key)
    return None if anchor is not None and anchor.scores == after.scores else change


def _page(
    changes: Sequence[Change],
    cases: Mapping[CaseKey, Sequence[CaseResult]],
    reason: str,
    root: Path,
) -> Section:
    """Before and after of what changes, and what a reviewer should know beside."""
    blocks: list[str | Table] = [f"reason: {reason}"]
    models = [f"{c.after.model.get('role')} {c.after.model.get('spec')}" for c in changes]
    blocks += [f"measured of: {model}" for model in dict.fromkeys(models)]
    if changes:
        rows = tuple(_row(change, cases[change.key][0], root) for change in changes)
        head = ("case", "before", "after", "difference", "n", "verdict", "anchor")
        blocks.append(Table(head, rows))
    blocks += _remarks(changes, root)
    blocks += _sensitivity_warnings(changes)
    same = len(cases) - len(changes)
    if same:
        blocks.append(f"unchanged: {counted(same, 'case')}")
    return Section(f"accepting into {root}", tuple(blocks))


def _row(change: Change, result: CaseResult, root: Path) -> tuple[str, ...]:
    before, after = change.before, change.after
    n = f"{after.n}" if before is None or before.n == after.n else f"{before.n} -> {after.n}"
    there = baseline_path(root, change.key).exists()
    value, difference = number(after.value), number(_difference(before, after), signed=True)
    if change.replaced_answers is not None:  # a win rate: against themselves all score one half
        value, difference = f"{change.replaced_answers} answers replaced", "-"
    return (
        str(change.key),
        ("unusable" if there else "new") if before is None else number(before.value),
        value,
        difference,
        n,
        result.verdict,
        "-" if change.anchor == "none" else change.anchor,
    )


def _difference(before: Measurement | None, after: Measurement) -> float | None:
    """Turned so that positive is better; None where the two mean different things."""
    if before is None or before.identity != after.identity:
        return None
    turned = (after.value - before.value) * (1 if after.higher_is_better else -1)
    return turned + 0.0  # turns -0.0 into 0.0


def _remarks(changes: Sequence[Change], root: Path) -> Iterator[str]:
    """Lines on changes that the table has no room for."""
    others: dict[str, list[CaseKey]] = {}
    for change in changes:
        before, after = change.before, change.after
        if before is None:
            yield from _unusable(change.key, root)
        elif before.identity != after.identity:
            names = before.identity.keys() | after.identity.keys()
            differ = sorted(n for n in names if before.identity.get(n) != after.identity.get(n))
            others.setdefault(", ".join(differ), []).append(change.key)
    for fields, keys in others.items():
        yield f"not comparable with what was accepted before ({fields}): {few_keys(keys)}"
    steps = {change.anchor for change in changes}
    if "frozen" in steps:
        yield (
            "frozen: what was accepted before stays as the anchor that all later steps are held to"
        )
    if "again" in steps:
        yield "again: the anchor was measured once more too, under the same conditions, and stays"
    if "moved" in steps:
        yield "moved: the anchor becomes what is accepted now; the steps until here are forgotten"


def _sensitivity_warnings(changes: Sequence[Change]) -> Iterator[str]:
    """Warnings of cases in which the set-up sees little: each sentence with its cases."""
    cases_of: dict[str, list[CaseKey]] = {}
    for change in changes:
        for remark in remarks_on_accepting(change.after):
            cases_of.setdefault(remark, []).append(change.key)
    for remark, keys in cases_of.items():
        yield f"warning: {few_keys(keys)}: {remark}"


def _unusable(key: CaseKey, root: Path) -> Iterator[str]:
    try:
        read_baseline(baseline_path(root, key), key)
    except BaselineError as error:
        yield f"replaced, since it cannot be used: {error}"


def _write(changes: Sequence[Change], arguments: Namespace) -> None:
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
    places = [
        _answers_place(suite, digests - {""}, arguments)
        for suite, digests in accepted.items()
        if digests - {""}
    ]
    show([], f"{counted(len(written), 'baseline')} written below {root}: commit them", *places)


def _answers_place(suite: str, digests: set[str], arguments: Namespace) -> str:
    """Where the accepted answers of a suite lie, of which a baseline has the digests alone."""
    folder: Path = arguments.store
    here = 0
    if (folder / INDEX).is_file():
        with ReadonlyStore(folder, f"the store {str(folder)!r}") as reader:
            here = len(keys_of_answers(reader.read, digests))
    if here < len(digests):
        return (
            f"{len(digests) - here} of {len(digests)} accepted answers of {suite} are not in the "
            f"store {folder}: name the store of the run with --store DIR in cepbench store "
            "export --answers SUITE, which keeps them beside the baselines"
        )
    return (
        f"the {counted(here, 'accepted answer')} of {suite} lie in the store {folder} alone: "
        f"cepbench store export --answers SUITE --store {folder} keeps them beside the baselines"
    )
