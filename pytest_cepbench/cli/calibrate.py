"""`cepbench calibrate`: the noise of a model against itself, kept with its baselines."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.cli.output import NOT_DONE, Cell, Section, Table, show, tell
from pytest_cepbench.cli.session import measuring, pool_line, prepared_trial
from pytest_cepbench.errors import BaselineError, IncomparableError, WriteError
from pytest_cepbench.files import read_text
from pytest_cepbench.gate import dump_baseline
from pytest_cepbench.gate.baseline import BaselineChange, apply, baseline_path, read_baseline
from pytest_cepbench.gate.pairing import pair
from pytest_cepbench.studies.calibration import (
    Calibrated,
    PreparedCalibration,
    calibrate,
)

_COLUMNS = (
    "visible: the smallest drop that fails in 80 % of runs; held: in so many of 100 runs a "
    "checkpoint as good as its baseline is held, and undecided else; needed: units with which it "
    "is held in 80"
)

_REMEDY = (
    "give these cases as many units as they need, by samples or [chain] seeds, a larger tolerance, "
    "or a larger share of alpha"
)

_SILENT = (
    "the seeds change nothing: no model that plays uses its seed, so differences between "
    "checkpoints are not noise of drawing, and this calibration says nothing of them"
)


def run(arguments: Namespace) -> int:
    """Measure, print and write the noise; exit codes as in `main`."""
    root: Path = arguments.baselines
    with measuring(arguments.store, arguments.suite) as (pool, begin):
        prepared = prepared_trial(arguments, pool)
        begin()
        calibrated = calibrate(prepared, pool, tell)
        own, seeds = prepared.own, prepared.seeds
        suite, samples, role = own.suite, len(own.dataset.samples), own.assignments.under_test
        opening = [
            f"suite {suite.name}, version {suite.table.version}, {samples} samples",
            f"{role} {arguments.model} against itself, seeds {seeds[0]} to {seeds[-1]}",
            pool_line(pool),
            *(f"store: {note}: computed again" for note in pool.store.damage),
        ]
    # Cases of equal fate together; a case can have a remark on its baseline besides.
    fates: dict[str, list[str]] = {}
    changes: dict[str, BaselineChange] = {}
    for case in calibrated:
        state, remark, change = _noise_update(case, root, dry_run=arguments.dry_run)
        if change is not None:
            changes[case.key.within] = change
        for fate in filter(None, (state, remark)):
            fates.setdefault(fate, []).append(case.key.within)
    failed = False
    try:
        apply(list(changes.values()), root)  # all or none
    except WriteError as error:
        failed = bool(changes)
        fates = {str(error) if fate == _WRITTEN else fate: own for fate, own in fates.items()}
    lines = [f"{fate}: {', '.join(names)}" for fate, names in fates.items()]
    noises = [case.noise for case in calibrated if case.noise is not None]
    if noises and all(noise.sd == noise.value_sd == 0 for noise in noises):
        lines.append(_SILENT)
    summary = Section(f"noise of {len(calibrated)} cases in {root}", lines)
    show([*_page(prepared, calibrated, opening), summary])
    return NOT_DONE if failed or any(case.broken for case in calibrated) else 0


_WRITTEN = "written"

_NO_BASELINE = "no baseline was accepted yet: run pytest with --snapshot-update"

_OLDER = (
    "the baseline is not as this version writes it, and would change in more than its noise: "
    "accept it again first"
)


def _noise_update(
    case: Calibrated, root: Path, *, dry_run: bool
) -> tuple[str, str, BaselineChange | None]:
    """The fate of a case's noise, a remark on its baseline, and what is to be written.

    It is written into the baseline of the case, if that is of the same thing.
    """
    measured = case.measured
    if case.noise is None or measured is None:
        return "not kept, there is none", "", None
    path = baseline_path(root, measured.key)
    before, obstacle = None, _NO_BASELINE
    try:
        before = read_baseline(path, measured.key)
        if before is not None:
            pair(measured, before)
            obstacle = "" if read_text(path) == dump_baseline(before) else _OLDER
    except BaselineError as error:
        obstacle = str(error)
    except IncomparableError as error:
        obstacle = f"the baseline was made from something else: {error}"
    except (OSError, UnicodeDecodeError):  # the file was replaced since it was read
        obstacle = _OLDER
    if before is None or obstacle:
        return f"not kept, {obstacle}", "", None
    accepted, remark = before.model, ""
    if accepted.get("identity") != measured.model.get("identity"):
        remark = (
            f"the baseline is of another model ({accepted.get('spec')}) than the calibrated one"
        )
    if before.noise == case.noise:
        return "unchanged", remark, None
    if dry_run:
        return "to be written, but for --dry-run", remark, None
    change = BaselineChange(case.key, before, replace(before, noise=case.noise), "kept")
    return _WRITTEN, remark, change


def _page(
    prepared: PreparedCalibration, calibrated: Sequence[Calibrated], opening: Sequence[str]
) -> list[Section]:
    head = (
        *("case", "value", "value sd", "sd", "units", "alpha", "tolerance"),
        *("visible", "held", "needed"),
    )
    rows: list[list[Cell]] = []
    for case in calibrated:
        noise, known = case.noise, case.power
        row: list[Cell] = [case.key.within, None if case.measured is None else case.measured.value]
        row += [None] * 3 if noise is None else [noise.value_sd, noise.sd, noise.units]
        row += [f"{case.policy.alpha:.2g}" if case.policy.statistical else None]
        row += [f"{case.policy.tolerance:g}"]
        visible = known.visible if known is not None and isfinite(known.visible) else None
        row += [visible, *([None] * 2 if known is None else [known.held_of_100, known.needed])]
        rows.append(row)
    name = prepared.own.suite.name
    sections = [Section(f"calibration of {name}", (*opening, Table(head, rows), _COLUMNS))]
    if small := [case.key.within for case in calibrated if case.power and not case.power.enough]:
        often = f"a checkpoint as good as its baseline is often undecided: {', '.join(small)}"
        sections.append(Section("cases that are often undecided", (often, _REMEDY)))
    if broken := [f"{case.key}: {case.reason}" for case in calibrated if case.noise is None]:
        sections.append(Section("cases without a calibration", tuple(broken)))
    return sections
