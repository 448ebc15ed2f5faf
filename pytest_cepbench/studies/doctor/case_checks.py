"""Checks of the numbers: were they measured, do they lie above chance, which drop shows, what do they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.gate import Noise
from pytest_cepbench.gate.baseline import baseline_path, record_of, usable_baseline
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.sensitivity import (
    SMALL_SHARE,
    SMALLEST_SHARE,
    Range,
    Reach,
    largest_drop,
    range_of,
    reach,
)
from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.studies.calibration import Calibrated
from pytest_cepbench.studies.doctor.diagnosis import Cell, Check, CheckTable, Status
from pytest_cepbench.studies.doctor.measured_suite import MeasuredSuite
from pytest_cepbench.suites.cases import OVERALL
from pytest_cepbench.suites.estimate import ModelEstimate, forecast

_NAMED = 5


def measurability(calibrations: Sequence[Calibrated]) -> Check:
    """Check that every case was measured, and that its chains came to their end."""
    broken = [
        calibrated
        for calibrated in calibrations
        if calibrated.measured is None or calibrated.broken
    ]
    said = [f"{calibrated.key.within}: {calibrated.reason}" for calibrated in broken[:_NAMED]]
    if len(broken) > _NAMED:
        said.append(f"and {len(broken) - _NAMED} more cases")
    advice = ["mend what is said of the cases first: the other checks look at what was measured"]
    if broken:
        return Check("measurement", "problem", tuple(said), tuple(advice))
    measured = [
        calibrated.measured for calibrated in calibrations if calibrated.measured is not None
    ]
    warned = list(
        dict.fromkeys(warning for calibrated in measured for warning in calibrated.warnings)
    )
    stopped = [
        calibrated
        for calibrated in calibrations
        if calibrated.measured is not None and calibrated.measured.failures
    ]
    if stopped:
        most = max(stopped, key=lambda calibrated: sum(_failures(calibrated).values()))
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(_failures(most).items()))
        text = f"chains stopped ({most.key.within}: {kinds}): each counts as 0 from there on"
        warned.insert(0, text)
    if warned:
        advice = ["look at why chains stop before you accept scores"] if stopped else []
        return Check("measurement", "remark", tuple(warned[:_NAMED]), tuple(advice))
    return Check(
        "measurement", "pass", (f"all {len(calibrations)} cases were measured, no chain stopped",)
    )


def _failures(calibrated: Calibrated) -> Mapping[str, int]:
    return {} if calibrated.measured is None else calibrated.measured.failures


def chance_floors(calibrations: Sequence[Calibrated]) -> Check:
    """Check how far each similarity lies above chance, as a share of the way from there to 1.

    The same borders as when a baseline is accepted. What can lose no more than the tolerance until
    it is chance is a problem as well.
    """
    name = "chance floor"
    rows: list[tuple[Cell, ...]] = []
    blind: dict[str, Range] = {}
    poor: dict[str, Range] = {}
    for calibrated in calibrations:
        known = None if calibrated.measured is None else range_of(calibrated.measured)
        if known is None:
            continue
        rows.append((calibrated.key.within, known.value, known.floor, round(known.share, DECIMALS)))
        if known.share < SMALLEST_SHARE or known.headroom <= calibrated.policy.tolerance:
            blind[calibrated.key.within] = known
        elif known.share < SMALL_SHARE:
            poor[calibrated.key.within] = known
    if not rows:
        return Check(name, "not done", ("no case is a similarity that has a floor by chance",))
    said, advice = [], []
    if blind:
        said += [f"at chance: {line}" for line in _ranges(blind)]
        advice.append(
            "scores at chance say nothing of the model, and no checkpoint can be seen to be worse: "
            "use a describer and a generator that know this kind of images, or an encoder that "
            "tells them apart, and look at a few chains first"
        )
    if poor:
        said += [f"near chance: {line}" for line in _ranges(poor)]
        advice.append(
            "scores near chance have little to lose: try a stronger generator or encoder, or fewer "
            "iterations"
        )
    quiet = f"every similarity lies at least {SMALL_SHARE:.0%} of the way from chance to 1"
    figures = CheckTable(("case", "value", "by chance", "share of the range"), tuple(rows))
    status: Status = "problem" if blind else "remark" if poor else "pass"
    return Check(name, status, tuple(said) or (quiet,), tuple(advice), (figures,))


def _ranges(ranges: Mapping[str, Range]) -> Iterator[str]:
    """The cases with their ranges, the last ones named first: the whole suite is among them."""
    names = list(ranges)[::-1]
    yield from (f"{name}: {ranges[name]}" for name in names[:_NAMED])
    if len(names) > _NAMED:
        yield f"{len(names) - _NAMED} more cases"


@dataclass(frozen=True)
class _Seen:
    """The noise of a case.

    noise: None where it is not known.
    source: of the noise.
    """

    calibrated: Calibrated
    noise: Noise | None
    source: str

    @property
    def reach(self) -> Reach | None:
        """None where there is no noise or no statistics."""
        if self.noise is None or self.noise.sd == 0 or not self.calibrated.policy.statistical:
            return None
        return reach(self.noise.sd, self.noise.units, self.calibrated.policy)


def visible_drops(calibrations: Sequence[Calibrated], baselines: Path) -> Check:
    """The smallest drop that each case can show, beside its tolerance and what it has to lose.

    The noise is that between the measured seeds; where they change nothing, the one that the
    accepted baseline holds. A case of the whole suite that could not even show a fall to the worst
    there is, is a problem.
    """
    name = "visible drop"
    judged = [
        calibrated
        for calibrated in calibrations
        if calibrated.policy.statistical and calibrated.measured is not None
    ]
    if not judged:
        return Check(name, "not done", ("no case is judged by statistics",))
    seen = [_seen(calibrated, baselines) for calibrated in judged]
    rows = tuple(_row(calibrated) for calibrated in seen)
    head = ("case", "units", "sd", "noise of", "alpha", "tolerance", "visible", "needed")
    blind: list[str] = []
    small: list[str] = []
    most, whole_is_blind = 0, False
    for each in seen:
        known, measured = each.reach, each.calibrated.measured
        if known is None or measured is None or known.visible <= each.calibrated.policy.tolerance:
            continue
        most_to_lose = largest_drop(measured.value, record_of(measured), measured.floor)
        if most_to_lose is not None and known.visible > most_to_lose:
            blind.append(each.calibrated.key.within)
            whole_is_blind |= each.calibrated.key.part == OVERALL
        small.append(each.calibrated.key.within)
        most = max(most, known.needed or 0)
    said, advice = [], []
    if blind:
        said.append(f"not even a fall to the worst there is would show: {_listed(blind)}")
    if small:
        said.append(f"the tolerance is smaller than the smallest drop that shows: {_listed(small)}")
        number = f" (up to {most} units)" if most else ""
        advice.append(
            f"give these cases more units{number}, by samples or [chain] seeds, a larger "
            "tolerance, or a larger share of alpha (fewer primary cases)"
        )
    silent = [
        each.calibrated.key.within for each in seen if each.noise is not None and not each.noise.sd
    ]
    if silent:
        said.append(
            "not known, since the seeds change nothing and no baseline was calibrated: "
            f"{_listed(silent)}"
        )
    unknown = {
        each.calibrated.key.within: each.calibrated.reason for each in seen if each.noise is None
    }
    if unknown:
        said.append(f"not known: {_listed(list(unknown))} ({next(iter(unknown.values()))})")
    status: Status = "problem" if whole_is_blind else "remark" if said else "pass"
    quiet = "a drop of the tolerance shows in every case"
    return Check(name, status, tuple(said) or (quiet,), tuple(advice), (CheckTable(head, rows),))


def _seen(calibrated: Calibrated, baselines: Path) -> _Seen:
    if calibrated.noise is not None and calibrated.noise.sd > 0:
        return _Seen(calibrated, calibrated.noise, "seeds")
    assert calibrated.measured is not None
    kept = usable_baseline(baseline_path(baselines, calibrated.key), calibrated.key)
    same = kept is not None and kept.identity == record_of(calibrated.measured).identity
    if same and kept is not None and kept.noise is not None and kept.noise.sd > 0:
        return _Seen(calibrated, kept.noise, "baseline")
    return _Seen(calibrated, calibrated.noise, "-" if calibrated.noise is None else "seeds")


def _row(each: _Seen) -> tuple[Cell, ...]:
    known, noise, policy = each.reach, each.noise, each.calibrated.policy
    return (
        each.calibrated.key.within,
        None if noise is None else noise.units,
        None if noise is None else noise.sd,
        each.source,
        round(policy.alpha, 6),
        policy.tolerance,
        known.visible if known is not None and isfinite(known.visible) else None,
        None if known is None else known.needed,
    )


def _listed(names: Sequence[str]) -> str:
    """Names of cases, the whole suite's first, which stand last."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[::-1][:_NAMED]) + more


# -- what a run takes --------------------------------------------------------------------------------


def cost_of_a_run(measured_suite: MeasuredSuite) -> Check:
    """Inputs, seconds and, where a server counts them, tokens and money of a run on an empty store."""
    needs = forecast(measured_suite.run, [(case, None) for case in measured_suite.cases]).needs
    runners = {id(runner.bound): runner for runner in measured_suite.model_pool.runners.values()}
    rows: list[tuple[Cell, ...]] = []
    seconds: list[float | None] = []
    spent: list[Usage] = []
    for need in needs:
        runner = runners.get(id(need.bound))
        inputs = need.stored + need.inputs
        seconds.append(_seconds(need, runner, inputs))
        own = _usage(runner, inputs)
        spent.append(own)
        rows.append((need.bound.role, need.bound.spec, inputs, seconds[-1]))
    known = [value for value in seconds if value is not None]
    whole = "about" if len(known) == len(seconds) else "at least"
    said = (
        f"a run of {len(measured_suite.cases)} cases on an empty store: "
        f"{sum(need.stored + need.inputs for need in needs)} model inputs, {whole} {sum(known):.1f} "
        "s in models, loading not counted"
    )
    lines = [said]
    if len(known) < len(seconds):
        lines.append("time is not known of models whose results all came from the store")
    head: tuple[str, ...] = ("role", "model", "inputs", "seconds")
    usage = sum(spent, Usage())
    if usage.requests:
        lines.append(
            f"servers count about {usage.input_tokens} tokens in, {usage.output_tokens} out, "
            f"cost {usage.cost:.4g}"
        )
        head += ("tokens in", "tokens out", "cost")
        rows = [(*row, *_counted(own)) for row, own in zip(rows, spent, strict=True)]
    return Check("cost of a run", "pass", tuple(lines), (), (CheckTable(head, tuple(rows)),))


def _seconds(need: ModelEstimate, runner: RoleRunner | None, inputs: int) -> float | None:
    """The seconds of so many inputs, at the pace of earlier calls on this kind of device, else of this run."""
    if need.throughput is not None:
        return need.throughput.seconds * inputs
    if runner is None or not runner.tally.inputs:
        return None
    return runner.tally.seconds / runner.tally.inputs * inputs


def _counted(usage: Usage) -> tuple[Cell, ...]:
    """The tokens and the cost that a server counted; None where no server counts."""
    if not usage.requests:
        return None, None, None
    return usage.input_tokens, usage.output_tokens, usage.cost


def _usage(runner: RoleRunner | None, inputs: int) -> Usage:
    """The usage of a server for so many inputs, at the rate of this run."""
    if runner is None or not runner.tally.inputs or not runner.tally.usage.requests:
        return Usage()
    spent, share = runner.tally.usage, inputs / runner.tally.inputs
    return Usage(
        requests=round(spent.requests * share),
        input_tokens=round(spent.input_tokens * share),
        output_tokens=round(spent.output_tokens * share),
        images=round(spent.images * share),
        cost=spent.cost * share,
    )
