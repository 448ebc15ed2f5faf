"""The plan of a run: how every case would be judged and how well, and what that would take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cepbench.errors import BaselineError, CepError
from pytest_cepbench.evaluation.case_evaluation import planned_looks, read_references
from pytest_cepbench.evaluation.evaluator import AssignedCase, Evaluator
from pytest_cepbench.gate.sensitivity import reach
from pytest_cepbench.models.model_spec import parse_spec
from pytest_cepbench.models.protocols import BoundRole
from pytest_cepbench.models.registry import weights_bytes
from pytest_cepbench.models.system_limits import device_name
from pytest_cepbench.plugin.terminal.live import duration
from pytest_cepbench.plugin.workers.device_leases import Leases
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.report.text import number, printable
from pytest_cepbench.suites.estimate import Forecast, ModelEstimate, forecast

_UNKNOWN = "-"


def plan_lines(evaluator: Evaluator, leases: Leases) -> Iterator[str]:
    """How the cases that were collected would be judged, then what they would take; no model is asked.

    leases: of the workers that would run.
    """
    yield from _case_lines(evaluator)
    forecasts: list[Forecast] = []
    for path in dict.fromkeys(one.suite_file for one in evaluator.assigned.values()):
        yield ""
        yield from _suite_lines(evaluator, path, forecasts)
    if forecasts:
        yield from _total_lines(evaluator, forecasts, leases)


# -- how cases are judged ----------------------------------------------------------------------------


def _case_lines(evaluator: Evaluator) -> Iterator[str]:
    """A line for each case, under a head; no model is bound."""
    cases = list(evaluator.assigned.values())
    if not cases:
        yield "no case was collected"
        return
    names = [
        printable(f"{one.case.key.suite} {one.case.key.part} {one.case.label}") for one in cases
    ]
    width = max(map(len, names))
    yield (
        f"{'case':{width}}  {'gate':14} {'alpha':>9} {'tolerance':>9} {'units':>6} {'visible':>9} "
        f"{'needed':>7}  looks"
    )
    uncalibrated = False
    for one, name in zip(cases, names, strict=True):
        visible, needed, said = _reach(evaluator, one)
        uncalibrated |= visible == _UNKNOWN and one.policy.statistical
        gate = one.policy.gate if one.policy.primary else "informational"
        alpha = f"{one.policy.alpha:.2g}" if one.policy.statistical else _UNKNOWN
        looks = ", ".join(map(str, planned_looks(evaluator, one.suite_file, one.case, one.policy)))
        yield (
            f"{name:{width}}  {gate:14} {alpha:>9} {number(one.policy.tolerance):>9} "
            f"{_units(evaluator, one):>6} {visible:>9} {needed:>7}  {looks}{said}"
        )
    yield (
        "visible: the smallest drop that the units show with 80 % power; needed: units that show a "
        "drop of the tolerance; looks: samples, as far as they are needed"
    )
    if uncalibrated:
        yield "what is - is not known: `cepbench calibrate` measures it and keeps it with the baseline"


def _units(evaluator: Evaluator, one: AssignedCase) -> int:
    dataset = evaluator.suites.get(one.suite_file).dataset
    return len({s.unit for name in one.case.categories for s in dataset.in_category(name)})


def _reach(evaluator: Evaluator, one: AssignedCase) -> tuple[str, str, str]:
    """Smallest visible drop, units needed, and what is wrong with the baseline."""
    try:
        baseline = read_references(evaluator, one.case).baseline
    except BaselineError:
        return _UNKNOWN, _UNKNOWN, "  (unreadable baseline)"
    if baseline is None:
        return _UNKNOWN, _UNKNOWN, "  (no baseline)"
    if baseline.noise is None or not one.policy.statistical:
        return _UNKNOWN, _UNKNOWN, ""
    # Of a set metric the units are blocks of samples, as they were calibrated.
    units = baseline.noise.units if baseline.sizes else _units(evaluator, one)
    found = reach(baseline.noise.sd, units, one.policy)
    needed = _UNKNOWN if found.needed is None else str(found.needed)
    return number(found.visible), needed, ""


# -- what they take ----------------------------------------------------------------------------------

_HEAD = ("model", "in store", "inputs", "calls", "device", "weights", "time")


def _suite_lines(evaluator: Evaluator, path: Path, forecasts: list[Forecast]) -> Iterator[str]:
    """What the cases of a suite take, model by model. forecasts: it is added to them."""
    run = evaluator.suite_run(path)
    own = [one for one in evaluator.assigned.values() if one.suite_file == path]
    name = f"suite {printable(run.suite.name)}"
    try:
        looks = [planned_looks(evaluator, path, one.case, one.policy) for one in own]
        first = [
            (one.case, run.depth(one.case, sizes[0])) for one, sizes in zip(own, looks, strict=True)
        ]
        found = forecast(run, first)
    except CepError as error:
        yield f"{name}: what it takes cannot be told: {printable(str(error), 500)}"
        return
    forecasts.append(found)
    more = ", at the first look" if any(len(sizes) > 1 for sizes in looks) else ""
    yield (
        f"{name}: {counted(found.samples, 'sample')}, {counted(found.chains, 'chain')}, "
        f"{counted(found.steps, 'step')}, {found.stored} of them in the store{more}"
    )
    rows = [_HEAD, *(tuple(_cells(need)) for need in found.needs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for model, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield f"  {model:{widths[0]}}  {'  '.join(numbers)}"


def _cells(need: ModelEstimate) -> Iterator[str]:
    yield _name(need)
    yield str(need.stored)
    yield f"{need.inputs}{'+' if need.incomplete else ''}"
    yield str(need.calls)
    yield printable(device_name(need.bound.device), 40)
    yield _size(weights_bytes(parse_spec(need.bound.spec)))
    yield (
        _UNKNOWN if not need.inputs else "unknown" if need.seconds is None else _time(need.seconds)
    )


def _total_lines(
    evaluator: Evaluator, forecasts: Sequence[Forecast], leases: Leases
) -> Iterator[str]:
    """Of all suites: the models to load, where, and how long it takes."""
    needs = [need for one in forecasts for need in one.needs]
    if any(need.incomplete for need in needs):
        yield "+: and what a detector finds in images that are yet to be looked at"
    busy = [need for need in needs if need.inputs or need.incomplete]
    if not busy:
        yield "everything is in the store: no model is loaded"
        return
    workers = max(1, len(leases.variables))
    yield f"{_loads(evaluator, busy)}{' on each worker' if workers > 1 else ''}"
    if workers > 1:
        yield f"{workers} workers{': ' if leases.lines else ' on the same cores'}{'; '.join(leases.lines)}"
    unknown = {_name(need) for need in busy if need.seconds is None}
    if unknown:
        of = counted(len({_name(need) for need in busy}), "model")
        yield (
            f"time not known: {len(unknown)} of {of} never worked on this kind of device long enough "
            "to tell"
        )
        return
    seconds = sum(need.seconds or 0.0 for need in busy) / workers
    yield f"about {_time(seconds)}, loading not counted"


def _loads(evaluator: Evaluator, busy: Sequence[ModelEstimate]) -> str:
    models = {_load(need.bound): need.bound.spec for need in busy}
    sizes = [weights_bytes(parse_spec(spec)) for spec in models.values()]
    known = [size for size in sizes if size is not None]
    text = f"{counted(len(models), 'model')} to load"
    if not known:
        return text
    least = "" if len(known) == len(sizes) else "at least "
    if evaluator.settings.residency == "swap":
        return f"{text}, in turns, {least}{_size(max(known))} of weights at a time"
    return f"{text}, {least}{_size(sum(known))} of weights"


def _load(bound: BoundRole) -> str:
    """What is loaded once: a model for a role, or for several that share it."""
    return bound.shares or f"{bound.role} {bound.spec}"


def _name(need: ModelEstimate) -> str:
    return f"{need.bound.role} {printable(need.bound.spec, 60)}"


def _size(count: int | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 28 else f"{count / (1 << 20):.1f} MiB"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
