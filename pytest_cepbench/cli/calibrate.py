"""`cepbench calibrate`: the noise of a model against itself, printed and kept with its baselines."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.chains import total
from pytest_cepbench.cli.home import import_from
from pytest_cepbench.cli.measurement_session import measured
from pytest_cepbench.cli.parsing import read_trial
from pytest_cepbench.cli.rendering import Section, Table
from pytest_cepbench.cli.terminal import NOT_DONE, show, tell
from pytest_cepbench.errors import BaselineError, IncomparableError, WriteError
from pytest_cepbench.files import read_text
from pytest_cepbench.gate import Baseline, Noise, dump_baseline, load_baseline
from pytest_cepbench.gate.acceptance import Change, apply
from pytest_cepbench.gate.baseline import REMEDY
from pytest_cepbench.gate.measurement import Measurement
from pytest_cepbench.gate.pairing import pair
from pytest_cepbench.gate.paths import baseline_path
from pytest_cepbench.report.text import number
from pytest_cepbench.studies.calibration import (
    Calibrated,
    PreparedCalibration,
    Trial,
    calibrate,
    rehearse,
)
from pytest_cepbench.suites import ModelPool

_REMEDY = (
    "a drop as large as the tolerance will mostly be inconclusive there: give these cases as many "
    "units as they need, by samples or [chain] seeds, a larger tolerance, or a larger share of alpha"
)


def run(given: Namespace) -> int:
    """Play, print, and write the noise; exit codes as in `main`."""

    def get_ready(trial: Trial, roster: ModelPool) -> PreparedCalibration:
        import_from(trial.suite)
        return rehearse(trial, roster)

    def play(
        rehearsal: PreparedCalibration, roster: ModelPool
    ) -> tuple[Sequence[Calibrated], list[Section]]:
        found = calibrate(rehearsal, roster, tell)
        opening = list(_opening(rehearsal, roster, given.model))
        return found, _page(rehearsal, found, opening)

    played = measured(given.store, lambda: read_trial(given), get_ready, play)
    if isinstance(played, int):
        return played
    found, page = played
    kept = _write(
        [_keep(one, given.baselines, dry_run=given.dry_run) for one in found], given.baselines
    )
    show([*page, _summary(found, kept, given.baselines)])
    broken = any(one.broken for one in found) or any(one.failed for one in kept)
    return NOT_DONE if broken else 0


@dataclass(frozen=True)
class _Kept:
    """What became of the noise of a case.

    said: in a few words, equal for cases of equal fate. failed: whether a file could not be written.
    remark: what else should be known of its baseline. change: what is to be written.
    """

    said: str
    failed: bool = False
    remark: str = ""
    change: Change | None = None


def _keep(one: Calibrated, root: Path, *, dry_run: bool) -> _Kept:
    """The baseline of a case with its noise, if that is of the same thing; written by `_write`."""
    if one.noise is None or one.measured is None:
        return _Kept("not kept, there is none")
    try:
        before = _accepted(one.measured, root)
    except BaselineError as error:
        return _Kept(f"not kept, {error}")
    remark = _other_model(before.model, one.measured)
    if before.noise == one.noise or dry_run:
        said = "unchanged" if before.noise == one.noise else "to be written, but for --dry-run"
        return _Kept(said, remark=remark)
    change = Change(one.key, before, replace(before, noise=one.noise), "kept")
    return _Kept("written", remark=remark, change=change)


def _write(kept: Sequence[_Kept], root: Path) -> list[_Kept]:
    """Write all baselines that have a noise now, or none."""
    try:
        apply([one.change for one in kept if one.change is not None], root)
    except WriteError as error:
        failed = _Kept(str(error), failed=True)
        return [one if one.change is None else failed for one in kept]
    return list(kept)


def _accepted(measured: Measurement, root: Path) -> Baseline:
    """The baseline of what was measured. Raises BaselineError where its noise cannot be written."""
    path = baseline_path(root, measured.key)
    try:
        text = read_text(path)
        baseline = load_baseline(text, measured.key, path.name)
        pair(measured, baseline)
    except FileNotFoundError as error:
        msg = "no baseline was accepted yet: run pytest with --snapshot-update"
        raise BaselineError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the baseline cannot be read: {error}; {REMEDY}"
        raise BaselineError(msg) from error
    except IncomparableError as error:
        msg = f"the baseline was made from something else: {error}"
        raise BaselineError(msg) from error
    if dump_baseline(baseline) != text:
        msg = (
            "the baseline is not as this version writes it, and would change in more than its noise: "
            "accept it again first"
        )
        raise BaselineError(msg)
    return baseline


def _other_model(accepted: dict[str, str], measured: Measurement) -> str:
    if accepted.get("identity") == measured.model.get("identity"):
        return ""
    return f"the baseline is of another model ({accepted.get('spec')}) than the calibrated one"


def _opening(rehearsal: PreparedCalibration, roster: ModelPool, model: str) -> Iterator[str]:
    seeds = [play.seed for play in rehearsal.plays]
    table = rehearsal.suite.table
    lineup = rehearsal.plays[0].lineup
    spent = total(runner.tally for runner in roster.runners.values())
    samples = len(rehearsal.dataset.samples)
    yield f"suite {rehearsal.suite.name}, version {table.version}, {samples} samples"
    yield f"{lineup.under_test} {model} against itself, seeds {seeds[0]} to {seeds[-1]}"
    yield (
        f"{spent.loads} model loads, {spent.inputs} model inputs ({spent.seconds:.1f} s in models), "
        f"{spent.hits} results from the store"
    )
    yield from (f"store: {note}: computed again" for note in roster.store.damage)


def _page(
    rehearsal: PreparedCalibration, found: Sequence[Calibrated], opening: Sequence[str]
) -> list[Section]:
    head = ("case", "value", "value sd", "sd", "units", "alpha", "tolerance", "visible", "needed")
    rows = tuple(_row(one) for one in found)
    name = rehearsal.suite.name
    sections = [Section(f"calibration of {name}", (*opening, Table(head, rows)))]
    small = [_name(one) for one in found if one.remark is not None]
    if small:
        said = f"below what can be seen of this model's own noise: {', '.join(small)}"
        sections.append(Section("tolerances below the noise", (said, _REMEDY)))
    broken = [f"{one.key}: {one.reason}" for one in found if one.noise is None]
    if broken:
        sections.append(Section("cases without a calibration", tuple(broken)))
    return sections


def _row(one: Calibrated) -> tuple[str, ...]:
    noise, policy = one.noise, one.policy
    name = _name(one)
    value = number(None if one.measured is None else one.measured.value)
    alpha = f"{policy.alpha:.2g}" if policy.statistical else "-"
    tolerance = f"{policy.tolerance:g}"
    if noise is None:
        return (name, value, "-", "-", "-", alpha, tolerance, "-", "-")
    known = one.reach
    return (
        name,
        value,
        number(noise.value_sd),
        number(noise.sd),
        str(noise.units),
        alpha,
        tolerance,
        "-" if known is None or not isfinite(known.visible) else number(known.visible),
        "-" if known is None or known.needed is None else str(known.needed),
    )


def _summary(found: Sequence[Calibrated], kept: Sequence[_Kept], root: Path) -> Section:
    """What became of the calibration, cases of equal fate together."""
    fates: dict[str, list[str]] = {}
    for one, fate in zip(found, kept, strict=True):
        name = _name(one)
        fates.setdefault(fate.said, []).append(name)
        if fate.remark:
            fates.setdefault(fate.remark, []).append(name)
    lines = [f"{said}: {', '.join(names)}" for said, names in fates.items()]
    noises = [one.noise for one in found if one.noise is not None]
    if noises and all(_silent(noise) for noise in noises):
        lines.append(
            "the seeds change nothing: no model that plays uses its seed, so differences between "
            "checkpoints are not noise of drawing, and this calibration says nothing of them"
        )
    return Section(f"noise of {len(found)} cases in {root}", tuple(lines))


def _name(one: Calibrated) -> str:
    return one.key.within


def _silent(noise: Noise) -> bool:
    return noise.sd == 0 and noise.value_sd == 0
