"""`cepbench calibrate`: the noise of a model against itself, kept with its baselines."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.cli.output import NOT_DONE, Section, Table, show, tell
from pytest_cepbench.cli.session import measuring, pool_line, read_trial
from pytest_cepbench.errors import BaselineError, IncomparableError, WriteError
from pytest_cepbench.files import read_text
from pytest_cepbench.gate import Measurement, Verdict, dump_baseline
from pytest_cepbench.gate.acceptance import Change, apply
from pytest_cepbench.gate.baseline import baseline_path, read_baseline
from pytest_cepbench.gate.measurement import FreshMeasurement
from pytest_cepbench.gate.pairing import pair
from pytest_cepbench.report.number_format import number
from pytest_cepbench.studies.calibration import (
    Calibrated,
    PreparedCalibration,
    calibrate,
    prepare_calibration,
    repeated_verdicts,
)
from pytest_cepbench.suites import ModelPool

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
    trial = read_trial(arguments)
    with measuring(arguments.store, trial.suite) as (pool, begin):
        prepared = prepare_calibration(trial, pool)
        begin()
        calibrated = calibrate(prepared, pool, tell)
        opening = list(_opening(prepared, pool, arguments.model))
        page = _page(prepared, calibrated, opening)
    noises = _write(
        [
            _noise_update(case, arguments.baselines, dry_run=arguments.dry_run)
            for case in calibrated
        ],
        arguments.baselines,
    )
    show([*page, _summary(calibrated, noises, arguments.baselines)])
    broken = any(case.broken for case in calibrated) or any(case.failed for case in noises)
    return NOT_DONE if broken else 0


@dataclass(frozen=True)
class _NoiseUpdate:
    """Outcome of writing the noise of a case.

    state: in a few words, equal for cases of equal fate.
    failed: whether a file could not be written.
    remark: what else should be known of its baseline.
    change: what is to be written.
    """

    state: str
    failed: bool = False
    remark: str = ""
    change: Change | None = None


def _noise_update(case: Calibrated, root: Path, *, dry_run: bool) -> _NoiseUpdate:
    """The baseline of a case with its noise, if that is of the same thing; written by `_write`."""
    if case.noise is None or case.measured is None:
        return _NoiseUpdate("not kept, there is none")
    try:
        before = _baseline_of(case.measured, root)
    except BaselineError as error:
        return _NoiseUpdate(f"not kept, {error}")
    remark = _other_model(before.model, case.measured)
    if before.noise == case.noise or dry_run:
        state = "unchanged" if before.noise == case.noise else "to be written, but for --dry-run"
        return _NoiseUpdate(state, remark=remark)
    change = Change(case.key, before, replace(before, noise=case.noise), "kept")
    return _NoiseUpdate("written", remark=remark, change=change)


def _write(noises: Sequence[_NoiseUpdate], root: Path) -> list[_NoiseUpdate]:
    """Write all baselines that have a noise now, or none."""
    try:
        apply([noise.change for noise in noises if noise.change is not None], root)
    except WriteError as error:
        failed = _NoiseUpdate(str(error), failed=True)
        return [noise if noise.change is None else failed for noise in noises]
    return list(noises)


def _baseline_of(measured: FreshMeasurement, root: Path) -> Measurement:
    """The baseline of what was measured. Raises BaselineError where its noise cannot be written."""
    path = baseline_path(root, measured.key)
    baseline = read_baseline(path, measured.key)
    if baseline is None:
        raise BaselineError("no baseline was accepted yet: run pytest with --snapshot-update")
    try:
        pair(measured, baseline)
    except IncomparableError as error:
        raise BaselineError(f"the baseline was made from something else: {error}") from error
    if not _is_as_written(path, baseline):
        raise BaselineError(
            "the baseline is not as this version writes it, and would change in more than its "
            "noise: accept it again first"
        )
    return baseline


def _is_as_written(path: Path, baseline: Measurement) -> bool:
    """True where writing the baseline again would change nothing in its file."""
    try:
        return read_text(path) == dump_baseline(baseline)
    except (OSError, UnicodeDecodeError):  # the file was replaced since it was read
        return False


def _other_model(accepted: dict[str, str], measured: FreshMeasurement) -> str:
    if accepted.get("identity") == measured.model.get("identity"):
        return ""
    return f"the baseline is of another model ({accepted.get('spec')}) than the calibrated one"


def _opening(prepared: PreparedCalibration, pool: ModelPool, model: str) -> Iterator[str]:
    seeds = prepared.seeds
    table = prepared.own.suite.table
    assignments = prepared.own.assignments
    samples = len(prepared.own.dataset.samples)
    yield f"suite {prepared.own.suite.name}, version {table.version}, {samples} samples"
    yield f"{assignments.under_test} {model} against itself, seeds {seeds[0]} to {seeds[-1]}"
    yield pool_line(pool)
    yield from (f"store: {note}: computed again" for note in pool.store.damage)


def _page(
    prepared: PreparedCalibration, calibrated: Sequence[Calibrated], opening: Sequence[str]
) -> list[Section]:
    head = (
        *("case", "value", "value sd", "sd", "units", "alpha", "tolerance"),
        *("visible", "held", "needed"),
    )
    rows = tuple(_row(case) for case in calibrated)
    name = prepared.own.suite.name
    sections = [Section(f"calibration of {name}", (*opening, Table(head, rows), _COLUMNS))]
    small = [
        case.key.within for case in calibrated if case.power is not None and not case.power.enough
    ]
    if small:
        often = f"a checkpoint as good as its baseline is often undecided: {', '.join(small)}"
        sections.append(Section("cases that are often undecided", (often, _REMEDY)))
    sections.append(Section("A/A: the same weights twice", tuple(_repeats(prepared, calibrated))))
    broken = [f"{case.key}: {case.reason}" for case in calibrated if case.noise is None]
    if broken:
        sections.append(Section("cases without a calibration", tuple(broken)))
    return sections


def _silent(calibrated: Sequence[Calibrated]) -> bool:
    """True where the seeds change no case that was calibrated."""
    noises = [case.noise for case in calibrated if case.noise is not None]
    return bool(noises) and all(noise.sd == noise.value_sd == 0 for noise in noises)


def _repeats(prepared: PreparedCalibration, calibrated: Sequence[Calibrated]) -> Iterator[str]:
    """The A/A rate: how pairs of measurements of the same weights are judged, case by case."""
    rows = {
        case.key.within: repeated_verdicts(case)
        for case in calibrated
        if case.policy.primary and case.noise is not None
    }
    if not rows or _silent(calibrated):
        why = "the seeds change nothing" if rows else "no gating case was calibrated"
        yield f"how often verdicts on the same weights flip is not known: {why}"
        return
    pairs = len(prepared.seeds) * (len(prepared.seeds) - 1)
    yield (
        f"each seed as baseline of each other one, at each case's own alpha: {pairs} pairs, which "
        "share their seeds; so few are a rough figure"
    )
    runs = [_worst(verdicts) for verdicts in zip(*rows.values(), strict=True)]
    yield f"{_shares(runs)}: a run, by its worst case"
    alike: dict[str, list[str]] = {}
    for name, verdicts in rows.items():
        alike.setdefault(_shares([_worst([verdict]) for verdict in verdicts]), []).append(name)
    yield from (f"{shares}: {', '.join(names)}" for shares, names in alike.items())


_ENDS = ("regressed", "undecided", "held")
"""How a pair ends, the worst first; what has improved is held."""


def _worst(verdicts: Sequence[Verdict]) -> str:
    ends = {Verdict.REGRESSED: "regressed", Verdict.HELD: "held", Verdict.IMPROVED: "held"}
    return min((ends.get(verdict, "undecided") for verdict in verdicts), key=_ENDS.index)


def _shares(ends: Sequence[str]) -> str:
    return ", ".join(f"{100 * ends.count(end) / len(ends):.0f} % {end}" for end in _ENDS)


def _row(case: Calibrated) -> tuple[str, ...]:
    noise, policy = case.noise, case.policy
    name = case.key.within
    value = number(None if case.measured is None else case.measured.value)
    alpha = f"{policy.alpha:.2g}" if policy.statistical else "-"
    tolerance = f"{policy.tolerance:g}"
    if noise is None:
        return (name, value, "-", "-", "-", alpha, tolerance, "-", "-", "-")
    known = case.power
    return (
        name,
        value,
        number(noise.value_sd),
        number(noise.sd),
        str(noise.units),
        alpha,
        tolerance,
        "-" if known is None or not isfinite(known.visible) else number(known.visible),
        "-" if known is None else str(known.held_of_100),
        "-" if known is None or known.needed is None else str(known.needed),
    )


def _summary(
    calibrated: Sequence[Calibrated], outcomes: Sequence[_NoiseUpdate], root: Path
) -> Section:
    """Summary of what was written, cases of equal outcome together."""
    fates: dict[str, list[str]] = {}
    for case, outcome in zip(calibrated, outcomes, strict=True):
        name = case.key.within
        fates.setdefault(outcome.state, []).append(name)
        if outcome.remark:
            fates.setdefault(outcome.remark, []).append(name)
    lines = [f"{state}: {', '.join(names)}" for state, names in fates.items()]
    if _silent(calibrated):
        lines.append(_SILENT)
    return Section(f"noise of {len(calibrated)} cases in {root}", tuple(lines))
