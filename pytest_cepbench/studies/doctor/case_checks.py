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
from pytest_cepbench.studies.doctor.setup import MeasuredSuite
from pytest_cepbench.suites.cases import OVERALL
from pytest_cepbench.suites.estimate import ModelEstimate, forecast

_NAMED = 5


def measurability(found: Sequence[Calibrated]) -> Check:
    """Whether every case could be measured, and how many of its chains came to their end."""
    broken = [one for one in found if one.measured is None or one.broken]
    said = [f"{one.key.within}: {one.reason}" for one in broken[:_NAMED]]
    if len(broken) > _NAMED:
        said.append(f"and {len(broken) - _NAMED} more cases")
    advice = ["mend what is said of the cases first: the other checks look at what was measured"]
    if broken:
        return Check("measurement", "problem", tuple(said), tuple(advice))
    measured = [one.measured for one in found if one.measured is not None]
    warned = list(dict.fromkeys(warning for one in measured for warning in one.warnings))
    stopped = [one for one in found if one.measured is not None and one.measured.failures]
    if stopped:
        most = max(stopped, key=lambda one: sum(_failures(one).values()))
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(_failures(most).items()))
        text = f"chains stopped ({most.key.within}: {kinds}): each counts as 0 from there on"
        warned.insert(0, text)
    if warned:
        advice = ["look at why chains stop before you accept scores"] if stopped else []
        return Check("measurement", "remark", tuple(warned[:_NAMED]), tuple(advice))
    return Check(
        "measurement", "pass", (f"all {len(found)} cases were measured, no chain stopped",)
    )


def _failures(one: Calibrated) -> Mapping[str, int]:
    return {} if one.measured is None else one.measured.failures


def chance_floors(found: Sequence[Calibrated]) -> Check:
    """How far each similarity lies above what chance gives, as a share of the way from there to 1.

    The same borders as when a baseline is accepted. What can lose no more than the tolerance until
    it is chance is a problem as well.
    """
    name = "chance floor"
    rows: list[tuple[Cell, ...]] = []
    blind: dict[str, Range] = {}
    poor: dict[str, Range] = {}
    for one in found:
        known = None if one.measured is None else range_of(one.measured)
        if known is None:
            continue
        rows.append((one.key.within, known.value, known.floor, round(known.share, DECIMALS)))
        if known.share < SMALLEST_SHARE or known.headroom <= one.policy.tolerance:
            blind[one.key.within] = known
        elif known.share < SMALL_SHARE:
            poor[one.key.within] = known
    if not rows:
        return Check(name, "not done", ("no case is a similarity that has a floor by chance",))
    said, advice = [], []
    if blind:
        said += [f"at chance: {line}" for line in _ranges(blind)]
        advice.append(
            "scores at chance say nothing of the model, and no checkpoint can be seen to be worse: use a "
            "describer and a generator that know this kind of images, or an encoder that tells them "
            "apart, and look at a few chains first"
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


def _ranges(found: Mapping[str, Range]) -> Iterator[str]:
    """The cases with their ranges, the last ones named first: the whole suite is among them."""
    names = list(found)[::-1]
    yield from (f"{name}: {found[name]}" for name in names[:_NAMED])
    if len(names) > _NAMED:
        yield f"{len(names) - _NAMED} more cases"


@dataclass(frozen=True)
class _Seen:
    """How well a case can be told from noise. source: of the noise. noise: None where it is not known."""

    one: Calibrated
    noise: Noise | None
    source: str

    @property
    def reach(self) -> Reach | None:
        """None where there is no noise or no statistics."""
        if self.noise is None or self.noise.sd == 0 or not self.one.policy.statistical:
            return None
        return reach(self.noise.sd, self.noise.units, self.one.policy)


def visible_drops(found: Sequence[Calibrated], baselines: Path) -> Check:
    """The smallest drop that each case can show, beside its tolerance and what it has to lose.

    The noise is that between the seeds that were played; where they change nothing, the one that the
    accepted baseline holds. A case of the whole suite that could not even show a fall to the worst there is, is a
    problem.
    """
    name = "visible drop"
    judged = [one for one in found if one.policy.statistical and one.measured is not None]
    if not judged:
        return Check(name, "not done", ("no case is judged by statistics",))
    seen = [_seen(one, baselines) for one in judged]
    rows = tuple(_row(one) for one in seen)
    head = ("case", "units", "sd", "noise of", "alpha", "tolerance", "visible", "needed")
    blind: list[str] = []
    small: list[str] = []
    most, whole_is_blind = 0, False
    for each in seen:
        known, measured = each.reach, each.one.measured
        if known is None or measured is None or known.visible <= each.one.policy.tolerance:
            continue
        most_to_lose = largest_drop(measured.value, record_of(measured), measured.floor)
        if most_to_lose is not None and known.visible > most_to_lose:
            blind.append(each.one.key.within)
            whole_is_blind |= each.one.key.part == OVERALL
        small.append(each.one.key.within)
        most = max(most, known.needed or 0)
    said, advice = [], []
    if blind:
        said.append(f"not even a fall to the worst there is would show: {_listed(blind)}")
    if small:
        said.append(f"the tolerance is smaller than the smallest drop that shows: {_listed(small)}")
        number = f" (up to {most} units)" if most else ""
        advice.append(
            f"give these cases more units{number}, by samples or [chain] seeds, a larger tolerance, or a "
            "larger share of alpha (fewer primary cases)"
        )
    silent = [each.one.key.within for each in seen if each.noise is not None and not each.noise.sd]
    if silent:
        said.append(
            f"not known, since the seeds change nothing and no baseline was calibrated: {_listed(silent)}"
        )
    unknown = {each.one.key.within: each.one.reason for each in seen if each.noise is None}
    if unknown:
        said.append(f"not known: {_listed(list(unknown))} ({next(iter(unknown.values()))})")
    status: Status = "problem" if whole_is_blind else "remark" if said else "pass"
    quiet = "a drop of the tolerance shows in every case"
    return Check(name, status, tuple(said) or (quiet,), tuple(advice), (CheckTable(head, rows),))


def _seen(one: Calibrated, baselines: Path) -> _Seen:
    if one.noise is not None and one.noise.sd > 0:
        return _Seen(one, one.noise, "seeds")
    assert one.measured is not None
    kept = usable_baseline(baseline_path(baselines, one.key), one.key)
    same = kept is not None and kept.identity == record_of(one.measured).identity
    if same and kept is not None and kept.noise is not None and kept.noise.sd > 0:
        return _Seen(one, kept.noise, "baseline")
    return _Seen(one, one.noise, "-" if one.noise is None else "seeds")


def _row(each: _Seen) -> tuple[Cell, ...]:
    known, noise, policy = each.reach, each.noise, each.one.policy
    return (
        each.one.key.within,
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


def cost_of_a_run(setup: MeasuredSuite) -> Check:
    """Inputs, seconds and, where a server counts them, tokens and money of a run on an empty store."""
    needs = forecast(setup.run, [(case, None) for case in setup.cases]).needs
    runners = {id(runner.bound): runner for runner in setup.roster.runners.values()}
    rows: list[tuple[Cell, ...]] = []
    seconds: list[float | None] = []
    spent: list[Usage] = []
    for need in needs:
        runner = runners.get(id(need.bound))
        inputs = need.found + need.inputs
        seconds.append(_seconds(need, runner, inputs))
        own = _usage(runner, inputs)
        spent.append(own)
        rows.append((need.bound.role, need.bound.spec, inputs, seconds[-1]))
    known = [one for one in seconds if one is not None]
    whole = "about" if len(known) == len(seconds) else "at least"
    said = (
        f"a run of {len(setup.cases)} cases on an empty store: {sum(need.found + need.inputs for need in needs)} "
        f"model inputs, {whole} {sum(known):.1f} s in models, loading not counted"
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
    """By the pace of earlier calls on this kind of device, else by what the model took just now."""
    if need.habit is not None:
        return need.habit.seconds * inputs
    if runner is None or not runner.tally.inputs:
        return None
    return runner.tally.seconds / runner.tally.inputs * inputs


def _counted(usage: Usage) -> tuple[Cell, ...]:
    """Of a model that no server counts for: not known."""
    if not usage.requests:
        return None, None, None
    return usage.input_tokens, usage.output_tokens, usage.cost


def _usage(runner: RoleRunner | None, inputs: int) -> Usage:
    """What so many inputs take of a server, by what those took that it was given just now."""
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
