"""`cepbench accept --remeasure`: the chosen checkpoint measured again, then accepted."""

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

from pytest_cepbench.cli.output import Section, Table, show, tell
from pytest_cepbench.cli.session import fixed_roles, measuring, read_data
from pytest_cepbench.errors import EndedError, SpecError, SuiteError, few_of
from pytest_cepbench.evaluation.run_report import RunReport
from pytest_cepbench.gate import CaseKey, Measurement
from pytest_cepbench.gate.acceptance import Change
from pytest_cepbench.gate.baseline import anchor_path, as_accepted, baseline_path, usable_baseline
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.number_format import counted, number
from pytest_cepbench.studies.remeasurement import (
    AcceptedCheckpoint,
    PreparedRemeasurement,
    measure_again,
    prepare_remeasurement,
)
from pytest_cepbench.suites import RoleChoices, load_suite
from pytest_cepbench.suites.definition import amended_text

Cases = Mapping[CaseKey, Sequence[CaseResult]]

_FEW = 2  # measurements, of whose spread hardly anything is known

_ONLY_WITH = ("model", "describer", "generator", "detector", "vqa", "role", "samples", "seeds")


def refuse_unused_options(arguments: Namespace) -> None:
    """Raise SpecError where options that only measuring has a use for are given without it."""
    named = [name for name in _ONLY_WITH if getattr(arguments, name) is not None]
    named += [name for name in ("encoder", "data") if getattr(arguments, name)]
    if arguments.remeasure is None and named:
        raise SpecError(f"--{named[0]} says what is measured again: it needs --remeasure SUITE")
    if arguments.remeasure is not None and arguments.case:
        raise SpecError(
            "--case: the cases of a suite share its seed and its samples, so --remeasure takes all "
            "of them; drop --case"
        )


@dataclass(frozen=True)
class Remeasured:
    """A checkpoint that was measured again.

    cases: as in the report, with the fresh measurements.
    before: what the report had.
    ready: what is fresh.
    anchors: what later steps are held to, measured again too.
    others: how many cases of other suites the report has.
    """

    cases: Cases
    before: Mapping[CaseKey, Measurement]
    ready: PreparedRemeasurement
    anchors: Mapping[CaseKey, Measurement]
    others: int

    @property
    def note(self) -> str:
        """Note for the baselines on the new measurement."""
        return f"again {self.ready.conditions}"

    def with_anchors(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The changes, each with the anchor that its case is still held to."""
        for change in changes:
            anchor = self.anchors.get(change.key)
            if anchor is None:
                yield change
                continue
            before = self.ready.choice.anchors[change.key].accepted
            anchor = replace(anchor, accepted=before | {"remeasured": self.note})
            yield changed(change, anchor="again", renewed=anchor)

    def sections(self) -> Iterator[Section]:
        """Table of each score when chosen and when measured again."""
        rows = []
        for key, (result, *_) in self.cases.items():
            then, now = self.before[key], result.measurement
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
        blocks += self._spread_remarks()
        if self.others:
            blocks.append(f"of other suites, and not accepted: {counted(self.others, 'case')}")
        yield Section(f"measured again {self.ready.conditions}", tuple(blocks))

    def _spread_remarks(self) -> Iterator[str]:
        """What several seeds show of the cases; nothing of a single one."""
        spreads = {
            key.within: measured.spread
            for key, (result, *_) in self.cases.items()
            if (measured := result.measurement) is not None and measured.spread is not None
        }
        still = [name for name, spread in spreads.items() if not any(spread.deviations.values())]
        if len(still) == len(spreads) > 0:
            yield "the seeds change nothing: the gate compares as with one measurement"
        elif still:
            yield f"the seeds change nothing in {few_of(still)}"
        if self.ready.choice.seeds == _FEW:
            yield (
                "2 measurements show a spread with one degree of freedom for each category: drops "
                "are hard to find, take 5 or more"
            )

    def write_suite(self) -> None:
        """Have later runs measure as the new baselines were measured. Raises EndedError."""
        file, setting = self.ready.before.file, self.ready.setting
        try:
            _replace(file, amended_text(self.ready.before, setting))
        except (OSError, SuiteError) as error:
            raise EndedError(
                f"the baselines are written, and {str(file)!r} could not be: {error}. Set "
                f"{setting} in it by hand: until then every case is incomparable"
            ) from error
        show([], f"{file}: {setting}; commit it with the baselines")


def _replace(file: Path, text: str) -> None:
    """Replace a file at once, also behind a link; nothing is left behind where that fails."""
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


def remeasure(arguments: Namespace, report: RunReport, cases: Cases) -> Remeasured:
    """Measure the chosen checkpoint again. cases: of the report, none refused."""
    checkpoint = _accepted_checkpoint(arguments, report, cases)
    with measuring(arguments.store, checkpoint.suite) as (pool, begin):
        prepared = prepare_remeasurement(checkpoint, pool)
        _require_writable(prepared)
        begin()
        remeasured = measure_again(prepared, pool, tell)
    fresh = {
        key: [replace(results[0], measurement=remeasured.records[key])]
        for key, results in cases.items()
        if key in remeasured.records
    }
    return Remeasured(
        fresh, prepared.choice.records, prepared, remeasured.anchors, len(cases) - len(fresh)
    )


def _accepted_checkpoint(
    arguments: Namespace, report: RunReport, cases: Cases
) -> AcceptedCheckpoint:
    """Checkpoint to measure again. Raises SpecError and SuiteError."""
    file = arguments.remeasure
    name = load_suite(file).name
    records = {}
    for key, (first, *_) in cases.items():
        if key.suite == name:
            assert first.measurement is not None  # or the case was refused
            records[key] = as_accepted(first.measurement)
    if not records:
        raise SpecError(
            f"the results hold no case of suite {name!r}, which {str(arguments.remeasure)!r} is"
        )
    spec = next(iter(records.values())).model.get("spec")
    roles, encoders = fixed_roles(arguments)
    return AcceptedCheckpoint(
        suite=file,
        choices=RoleChoices(arguments.model or spec, arguments.role, roles, encoders),
        records=records,
        digest=report.digest,
        data=read_data(arguments.data),
        samples=arguments.samples,
        seeds=arguments.seeds or 1,
        anchors={} if arguments.move_anchor else dict(_references(records, arguments.baselines)),
    )


def _references(
    records: Mapping[CaseKey, Measurement], root: Path
) -> Iterator[tuple[CaseKey, Measurement]]:
    """Reference of each case after an ordinary acceptance: its anchor, else its baseline."""
    for key, record in records.items():
        for path in (anchor_path(root, key), baseline_path(root, key)):
            reference = usable_baseline(path, key)
            if reference is not None and reference.identity == record.identity:
                yield key, reference
                break


def _require_writable(prepared: PreparedRemeasurement) -> None:
    """Raise SuiteError where the suite's file cannot be written, before anything is measured."""
    file = prepared.before.file
    amended_text(prepared.before, prepared.setting)
    if not os.access(file, os.W_OK) or not os.access(file.resolve().parent, os.W_OK):
        raise SuiteError(
            f"{str(file)!r} cannot be written, and has to hold {prepared.setting} from now on: "
            "make it and its folder writable, or work on a copy of the suite"
        )
