"""`cepbench accept --remeasure`: the chosen checkpoint measured again before it becomes the baseline."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from shutil import copymode

from msgspec.structs import replace

from pytest_cepbench.cli.home import import_from
from pytest_cepbench.cli.measurement_session import measured
from pytest_cepbench.cli.parsing import fixed_roles, read_count, read_data, suite_file
from pytest_cepbench.cli.rendering import Section, Table
from pytest_cepbench.cli.results import RunReport
from pytest_cepbench.cli.terminal import NOT_DONE, complain, show, tell
from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.gate import Baseline, CaseKey
from pytest_cepbench.gate.acceptance import Change, readable
from pytest_cepbench.gate.paths import anchor_path, baseline_path
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.formatting import counted
from pytest_cepbench.report.text import number
from pytest_cepbench.studies.remeasurement import (
    AcceptedCheckpoint,
    PreparedRemeasurement,
    Remeasurement,
    measure_again,
    prepare_remeasurement,
)
from pytest_cepbench.suites import ModelPool, RoleChoices, load_suite
from pytest_cepbench.suites.suite_file_edit import amended_text

Cases = Mapping[CaseKey, Sequence[CaseResult]]

_ONLY_WITH = ("model", "describer", "generator", "detector", "role", "samples")


def refuse_without(given: Namespace) -> None:
    """Raise SpecError where options that only measuring has a use for are given without it."""
    named = [name for name in _ONLY_WITH if getattr(given, name) is not None]
    named += [name for name in ("encoder", "data") if getattr(given, name)]
    if given.remeasure is None and named:
        msg = f"--{named[0]} says what is measured again: it needs --remeasure SUITE"
        raise SpecError(msg)
    if given.remeasure is not None and given.case:
        msg = (
            "--case: the cases of a suite share its seed and its samples, so --remeasure takes all of "
            "them; drop --case"
        )
        raise SpecError(msg)


@dataclass(frozen=True)
class Remeasured:
    """A checkpoint that was measured again.

    cases: as in the report, with the fresh measurements. before: what the report had.
    ready: what is fresh. anchors: what later steps are held to, measured again too. others: how many
    cases of other suites the report has.
    """

    cases: Cases
    before: Mapping[CaseKey, Baseline]
    ready: PreparedRemeasurement
    anchors: Mapping[CaseKey, Baseline]
    others: int

    @property
    def said(self) -> str:
        """What was done, for the baselines."""
        return f"again {self.ready.said}"

    def held(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The changes, each with the anchor that its case is still held to."""
        for change in changes:
            anchor = self.anchors.get(change.key)
            if anchor is None:
                yield change
                continue
            before = self.ready.choice.anchors[change.key].accepted
            anchor = replace(anchor, accepted=before | {"remeasured": self.said})
            yield changed(change, anchor="again", renewed=anchor)

    def sections(self) -> Iterator[Section]:
        """How much of each score was luck."""
        rows = []
        for key, (result, *_) in self.cases.items():
            then, now = self.before[key], result.measured
            assert now is not None
            turned = (now.value - then.value) * (1 if now.higher_is_better else -1) + 0.0
            rows.append(
                (str(key), number(then.value), number(now.value), number(turned, signed=True))
            )
        head = ("case", "when chosen", "again", "difference")
        file = self.ready.before.file
        blocks: list[str | Table] = [
            Table(head, tuple(rows)),
            f"later runs are compared under the same conditions: {self.ready.setting} in {file}",
        ]
        if self.others:
            blocks.append(f"of other suites, and not accepted: {counted(self.others, 'case')}")
        yield Section(f"measured again {self.ready.said}", tuple(blocks))

    def write_suite(self) -> int:
        """Have later runs measure as the new baselines were measured; returns the exit code."""
        file, setting = self.ready.before.file, self.ready.setting
        try:
            _replace(file, amended_text(self.ready.before, setting))
        except (OSError, SuiteError) as error:
            return complain(
                f"the baselines are written, and {str(file)!r} could not be: {error}. Set {setting} in "
                "it by hand: until then every case is incomparable",
                NOT_DONE,
            )
        show([], f"{file}: {setting}; commit it with the baselines")
        return 0


def _replace(file: Path, text: str) -> None:
    """Write a file at once, also where a link leads to it; nothing is left behind where that fails."""
    target = file.resolve()
    fresh = target.with_name(f".{target.name}.new")
    try:
        fresh.write_bytes(text.encode("utf-8"))
        copymode(target, fresh)
        fresh.replace(target)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def remeasure(given: Namespace, report: RunReport, cases: Cases) -> Remeasured | int:
    """Measure the chosen checkpoint again; an exit code where that was not possible.

    cases: of the report, none refused.
    """

    def ask() -> AcceptedCheckpoint:
        return _choice(given, report, cases)

    def prepare(choice: AcceptedCheckpoint, roster: ModelPool) -> PreparedRemeasurement:
        import_from(choice.suite)
        ready = prepare_remeasurement(choice, roster)
        _require_writable(ready)
        return ready

    def play(
        ready: PreparedRemeasurement, roster: ModelPool
    ) -> tuple[PreparedRemeasurement, Remeasurement]:
        return ready, measure_again(ready, roster, tell)

    played = measured(given.store, ask, prepare, play)
    if isinstance(played, int):
        return played
    ready, again = played
    fresh = {
        key: [replace(results[0], measured=again.records[key])]
        for key, results in cases.items()
        if key in again.records
    }
    return Remeasured(fresh, ready.choice.records, ready, again.anchors, len(cases) - len(fresh))


def _choice(given: Namespace, report: RunReport, cases: Cases) -> AcceptedCheckpoint:
    """What is to be measured again. Raises SpecError and SuiteError."""
    file = suite_file(given.remeasure)
    name = load_suite(file).name
    records = {}
    for key, (first, *_) in cases.items():
        if key.suite == name:
            assert first.measured is not None  # or the case was refused
            records[key] = first.measured
    if not records:
        msg = f"the results hold no case of suite {name!r}, which {str(given.remeasure)!r} is"
        raise SpecError(msg)
    spec = next(iter(records.values())).model.get("spec")
    roles, encoders = fixed_roles(given)
    return AcceptedCheckpoint(
        suite=file,
        choices=RoleChoices(given.model or spec, given.role, roles, encoders),
        records=records,
        digest=report.digest,
        data=read_data(given.data),
        samples=read_count("--samples", given.samples),
        anchors={} if given.move_anchor else dict(_held_to(records, given.baselines)),
    )


def _held_to(records: Mapping[CaseKey, Baseline], root: Path) -> Iterator[tuple[CaseKey, Baseline]]:
    """What each case would be held to after an ordinary acceptance: its anchor, else its baseline."""
    for key, record in records.items():
        for path in (anchor_path(root, key), baseline_path(root, key)):
            held = readable(path, key)
            if held is not None and held.identity == record.identity:
                yield key, held
                break


def _require_writable(ready: PreparedRemeasurement) -> None:
    """Raise SuiteError where the suite's file cannot get the fresh setting, before anything is measured."""
    file = ready.before.file
    amended_text(ready.before, ready.setting)
    if not os.access(file, os.W_OK) or not os.access(file.resolve().parent, os.W_OK):
        msg = (
            f"{str(file)!r} cannot be written, and has to hold {ready.setting} from now on: make it and "
            "its folder writable, or work on a copy of the suite"
        )
        raise SuiteError(msg)
