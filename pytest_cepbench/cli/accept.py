"""`cepbench accept`: take what a run measured as baselines, from its report alone.

With `--remeasure` the checkpoint that was chosen is measured again first.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as changed
from pathlib import Path
from shutil import copymode

from msgspec.structs import replace

from pytest_cepbench.cli.output import INTERRUPTED, NOT_DONE, Section, Table, complain, show, tell
from pytest_cepbench.cli.session import fixed_roles, measuring
from pytest_cepbench.errors import (
    BaselineError,
    EndedError,
    SpecError,
    SuiteError,
    WriteError,
    few_of,
    unknown_name,
)
from pytest_cepbench.evaluation.run_report import (
    RunReport,
    contradictions,
    few_keys,
    key_of,
    read_report,
    refusals,
)
from pytest_cepbench.gate import CaseKey, Measurement
from pytest_cepbench.gate.acceptance import BaselineChange, apply, propose
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
from pytest_cepbench.studies.remeasurement import (
    AcceptedCheckpoint,
    Remeasurement,
    measure_again,
    prepare_remeasurement,
)
from pytest_cepbench.suites import RoleChoices, load_suite
from pytest_cepbench.suites.definition import amended_text

Cases = Mapping[CaseKey, Sequence[CaseResult]]
"""The cases that are to be accepted, each with all results that the run has of it."""

_FEW = 2  # measurements, of whose spread hardly anything is known

_ONLY_WITH = ("model", "describer", "generator", "detector", "vqa", "role", "samples", "seeds")

_BEST_OF_SEVERAL = (
    "chosen as the best of several checkpoints? Then these scores are lucky ones, and equal "
    "checkpoints will seem worse: accept with --remeasure SUITE"
)


def run(arguments: Namespace) -> int:
    """Show what changes and write it; exit codes as in `main`."""
    measured_again = [name for name in _ONLY_WITH if getattr(arguments, name) is not None]
    measured_again += [name for name in ("encoder", "data") if getattr(arguments, name)]
    if arguments.remeasure is None and measured_again:
        raise SpecError(
            f"--{measured_again[0]} says what is measured again: it needs --remeasure SUITE"
        )
    if arguments.remeasure is not None and arguments.case:
        raise SpecError(
            "--case: the cases of a suite share its seed and its samples, so --remeasure takes all "
            "of them; drop --case"
        )
    report = read_report(arguments.results)
    reason = arguments.reason.strip()  # a reviewer will read it
    if not reason:
        raise SpecError("--reason is empty: say in a sentence why these numbers are accepted")
    cases = _chosen(report, arguments.case)
    root: Path = arguments.baselines
    accepted = {"reason": reason, "results": report.digest}
    remeasured, others = None, 0
    # That a report contradicts itself counts where nothing else does.
    refused = list(refusals(report, cases, insensitive=arguments.accept_insensitive))
    refused = refused or list(contradictions(report))
    if arguments.remeasure is not None and not refused:
        remeasured = _remeasure(arguments, report, cases)
        accepted |= {"remeasured": remeasured.note}
        others = len(cases) - len(remeasured.records)
        cases = {
            key: [replace(cases[key][0], measurement=record)]
            for key, record in remeasured.records.items()
        }
        refused = list(refusals(report, cases, insensitive=arguments.accept_insensitive))
    for refusal in refused:
        complain(f"nothing is accepted: {refusal}", NOT_DONE)
    if refused:
        return NOT_DONE
    changes = list(_changes(cases, accepted, root, move_anchor=arguments.move_anchor))
    if remeasured is not None:
        changes = [_with_anchor(change, remeasured) for change in changes]
    page = [_page(changes, cases, reason, root)]
    if remeasured is not None:
        page.append(_again(remeasured, others))
    elif not changes:
        show(page, "nothing changed")
        return 0
    else:
        page = [Section(page[0].title, (*page[0].blocks, _BEST_OF_SEVERAL))]
    if arguments.dry_run:
        show(page, "nothing written: --dry-run")
        return 0
    show(page)
    if changes:
        _write(changes, arguments)
    if remeasured is not None:
        _write_suite(remeasured)
    return 0


def _chosen(report: RunReport, names: Sequence[str]) -> Cases:
    """Raises SpecError for a name that no case has, or cases of several suites."""
    results_of: dict[CaseKey, list[CaseResult]] = {}
    for case in report.cases:
        results_of.setdefault(key_of(case), []).append(case)
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


def _recorded(case: CaseResult) -> Measurement:
    assert case.measurement is not None  # or the case was refused
    return as_accepted(case.measurement)


def _changes(
    cases: Cases, accepted: dict[str, str], root: Path, *, move_anchor: bool
) -> Iterator[BaselineChange]:
    for key, (first, *_) in cases.items():
        measured = _recorded(first)
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
    blocks += [f"warning: {few_keys(keys)}: {remark}" for remark, keys in cases_of.items()]
    same = len(cases) - len(changes)
    if same:
        blocks.append(f"unchanged: {counted(same, 'case')}")
    return Section(f"accepting into {root}", tuple(blocks))


def _row(change: BaselineChange, result: CaseResult, root: Path) -> tuple[str, ...]:
    before, after = change.before, change.after
    n = f"{after.n}" if before is None or before.n == after.n else f"{before.n} -> {after.n}"
    there = baseline_path(root, change.key).exists()
    # Of two that mean different things there is no difference.
    comparable = before is not None and before.identity == after.identity
    value, difference = number(after.value), number(None)
    if comparable and before is not None:
        difference = number(_turned(before, after), signed=True)
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


def _turned(before: Measurement, after: Measurement) -> float:
    """The difference of two values, turned so that positive is better."""
    # The sum turns -0.0 into 0.0.
    return (after.value - before.value) * (1 if after.higher_is_better else -1) + 0.0


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
        here = 0
        if digests and (folder / INDEX).is_file():
            with ReadonlyStore(folder, f"the store {str(folder)!r}") as reader:
                here = len(keys_of_answers(reader.read, digests))
        if here < len(digests):
            lines.append(
                f"{len(digests) - here} of {len(digests)} accepted answers of {suite} are not in "
                f"the store {folder}: name the store of the run with --store DIR in cepbench store "
                "export --answers SUITE, which keeps them beside the baselines"
            )
        elif digests:
            lines.append(
                f"the {counted(here, 'accepted answer')} of {suite} lie in the store {folder} "
                f"alone: cepbench store export --answers SUITE --store {folder} keeps them beside "
                "the baselines"
            )
    show([], *lines)


# -- measured again --------------------------------------------------------------------------------


def _with_anchor(change: BaselineChange, remeasured: Remeasurement) -> BaselineChange:
    """The change with the anchor that its case is still held to, measured again too."""
    anchor = remeasured.anchors.get(change.key)
    if anchor is None:
        return change
    before = remeasured.ready.choice.anchors[change.key].accepted
    anchor = replace(anchor, accepted=before | {"remeasured": remeasured.note})
    return changed(change, anchor="again", renewed=anchor)


def _again(remeasured: Remeasurement, others: int) -> Section:
    """Table of each score when chosen and when measured again, and what several seeds show.

    others: how many cases of other suites the report has.
    """
    ready = remeasured.ready
    rows, spreads, file = [], {}, ready.before.file
    for key, now in remeasured.records.items():
        then = ready.choice.records[key]
        turned = number(_turned(then, now), signed=True)
        rows.append((str(key), number(then.value), number(now.value), turned))
        if now.spread is not None:
            spreads[key.within] = now.spread
    blocks: list[str | Table] = [
        Table(("case", "when chosen", "again", "difference"), tuple(rows)),
        f"later runs are compared under the same conditions: {ready.setting} in {file}",
    ]
    still = [name for name, spread in spreads.items() if not any(spread.deviations.values())]
    if len(still) == len(spreads) > 0:
        blocks.append("the seeds change nothing: the gate compares as with one measurement")
    elif still:
        blocks.append(f"the seeds change nothing in {few_of(still)}")
    if ready.choice.seeds == _FEW:
        blocks.append(
            "2 measurements show a spread with one degree of freedom for each category: drops "
            "are hard to find, take 5 or more"
        )
    if others:
        blocks.append(f"of other suites, and not accepted: {counted(others, 'case')}")
    return Section(f"measured again {ready.conditions}", tuple(blocks))


def _write_suite(remeasured: Remeasurement) -> None:
    """Have later runs measure as the new baselines were measured. Raises EndedError."""
    ready = remeasured.ready
    file, setting = ready.before.file, ready.setting
    target = file.resolve()  # also behind a link
    fresh = target.with_name(f".{target.name}.new")
    try:
        fresh.write_bytes(amended_text(ready.before, setting).encode("utf-8"))
        copymode(target, fresh)
        fresh.replace(target)
    except (OSError, SuiteError) as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise EndedError(
            f"the baselines are written, and {str(file)!r} could not be: {error}. Set "
            f"{setting} in it by hand: until then every case is incomparable"
        ) from error
    show([], f"{file}: {setting}; commit it with the baselines")


def _remeasure(arguments: Namespace, report: RunReport, cases: Cases) -> Remeasurement:
    """Measure the chosen checkpoint again. cases: of the report, none refused.

    Raises SpecError and SuiteError, also for a suite's file that could not be written afterwards.
    """
    suite: Path = arguments.remeasure
    name = load_suite(suite).name
    records = {key: _recorded(first) for key, (first, *_) in cases.items() if key.suite == name}
    if not records:
        raise SpecError(f"the results hold no case of suite {name!r}, which {str(suite)!r} is")
    anchors: dict[CaseKey, Measurement] = {}
    for key, record in () if arguments.move_anchor else records.items():
        # What a case is held to after an ordinary acceptance: its anchor, else its baseline.
        for path in (anchor_path, baseline_path):
            reference = usable_baseline(path(arguments.baselines, key), key)
            if reference is not None and reference.identity == record.identity:
                anchors[key] = reference
                break
    spec = next(iter(records.values())).model.get("spec")
    roles, encoders = fixed_roles(arguments)
    checkpoint = AcceptedCheckpoint(
        suite=suite,
        choices=RoleChoices(arguments.model or spec, arguments.role, roles, encoders),
        records=records,
        digest=report.digest,
        data=dict(arguments.data),
        samples=arguments.samples,
        seeds=arguments.seeds or 1,
        anchors=anchors,
    )
    with measuring(arguments.store, suite) as (pool, begin):
        prepared = prepare_remeasurement(checkpoint, pool)
        file = prepared.before.file
        amended_text(prepared.before, prepared.setting)
        if not os.access(file, os.W_OK) or not os.access(file.resolve().parent, os.W_OK):
            raise SuiteError(
                f"{str(file)!r} cannot be written, and has to hold {prepared.setting} from now on: "
                "make it and its folder writable, or work on a copy of the suite"
            )
        begin()
        return measure_again(prepared, pool, tell)
