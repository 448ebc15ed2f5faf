"""The plan of a run: how every case would be judged and how well, and what that would take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from pytest_cepbench.errors import BaselineError, CepError
from pytest_cepbench.evaluation.case_runner import planned_looks
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.suite_cache import AssignedCase
from pytest_cepbench.gate.compare import policy_beside
from pytest_cepbench.gate.sensitivity import Power, design_of, power_of
from pytest_cepbench.models.binding import BoundRole, weights_bytes
from pytest_cepbench.models.torch_runtime import device_name
from pytest_cepbench.plugin.terminal.header import series_line
from pytest_cepbench.plugin.workers.device_leases import Leases
from pytest_cepbench.report.number_format import counted, duration, number, printable
from pytest_cepbench.report.tables import Line, RowGroup, Span, TableLayout, table_lines
from pytest_cepbench.suites.suite_run import Forecast, ModelSteps

_UNKNOWN = "-"


def plan_lines(evaluator: Evaluator, leases: Leases, columns: int | None) -> Iterator[Line | str]:
    """How the collected cases would be judged, then what they would take; no model is asked.

    leases: of the workers that would run.
    columns: that a line of a table may take; None where that does not matter.
    Sentences are texts, lines of tables are not.
    """
    if not evaluator.assigned:
        yield "no case was collected"
        return
    yield from _case_lines(evaluator, columns)
    if evaluator.series is not None:
        yield series_line(evaluator.series)
    forecasts: list[Forecast] = []
    for path in dict.fromkeys(assigned.suite_file for assigned in evaluator.assigned.values()):
        yield ""
        yield from _suite_lines(evaluator, path, forecasts, columns)
    if forecasts:
        yield from _total_lines(evaluator, forecasts, leases)


# -- how cases are judged --------------------------------------------------------------------------


_CASES = TableLayout(
    heads=("case", "gate", "alpha", "tolerance", "units", "visible", "held", "needed", "looks"),
    words=frozenset({"case", "gate", "looks"}),
    name="case",
    dropped=("alpha", "units", "looks", "gate", "tolerance", "held", "visible", "needed"),
)


def _case_lines(evaluator: Evaluator, columns: int | None) -> Iterator[Line | str]:
    """A line for each case below its suite; no model is bound."""
    rows: dict[str, list[list[Span]]] = {}
    uncalibrated = False
    for assigned in evaluator.assigned.values():
        case, policy = assigned.case, assigned.policy
        dataset = evaluator.suites.get(assigned.suite_file).dataset
        units = len({s.unit for name in case.categories for s in dataset.in_category(name)})
        power, remark = _power(evaluator, assigned, units)
        uncalibrated |= power is None and policy.statistical
        sizes = planned_looks(evaluator, assigned)
        row = (
            printable(f"{case.key.part} {case.label}"),
            policy.gate if policy.primary else "informational",
            f"{policy.alpha:.2g}" if policy.statistical else _UNKNOWN,
            number(policy.tolerance),
            str(units),
            number(power.visible) if power is not None and power.visible < inf else _UNKNOWN,
            _UNKNOWN if power is None else str(power.held_of_100),
            _UNKNOWN if power is None or power.needed is None else str(power.needed),
            ", ".join(map(str, sizes)) + remark,
        )
        rows.setdefault(case.key.suite, []).append([Span(cell) for cell in row])
    groups = [RowGroup(own, printable(suite)) for suite, own in rows.items()]
    yield from table_lines(_CASES, groups, columns)
    yield (
        "visible: the smallest drop that fails in 80 % of runs; held: in so many of 100 runs a "
        "checkpoint as good as its baseline is held, and undecided else; needed: units with which "
        "it is held in 80; looks: samples, as far as they are needed"
    )
    if uncalibrated:
        yield (
            "what is - is not known: `cepbench calibrate` measures it and keeps it with the "
            "baseline"
        )


def _power(evaluator: Evaluator, assigned: AssignedCase, units: int) -> tuple[Power | None, str]:
    """What a case can tell, None where that is not known, and what is wrong with its baseline."""
    try:
        baseline, anchor = evaluator.suites.references(assigned.case.key)
    except BaselineError:
        return None, "  (unreadable baseline)"
    if baseline is None:
        return None, "  (no baseline)"
    if baseline.noise is None or not assigned.policy.statistical:
        return None, ""
    # Of a set metric the units are blocks of samples, as they were calibrated.
    design = design_of(baseline.noise, baseline.noise.units if baseline.sizes else units)
    policy = policy_beside(anchor, baseline, assigned.policy)
    return None if design is None else power_of(design, policy), ""


# -- what they take --------------------------------------------------------------------------------

_MODELS = TableLayout(
    heads=("model", "in store", "inputs", "calls", "device", "weights", "time"),
    words=frozenset({"model"}),
    name="model",
    dropped=("calls", "weights", "device", "in store", "inputs", "time"),
)


def _suite_lines(
    evaluator: Evaluator,
    path: Path,
    forecasts: list[Forecast],
    columns: int | None,
) -> Iterator[Line | str]:
    """What the cases of a suite take, model by model. forecasts: it is added to them."""
    run = evaluator.suite_run(path)
    own = [assigned for assigned in evaluator.assigned.values() if assigned.suite_file == path]
    name = f"suite {printable(run.suite.name)}"
    try:
        looks = [planned_looks(evaluator, assigned) for assigned in own]
        first = [
            (assigned.case, run.depth(assigned.case, sizes[0]))
            for assigned, sizes in zip(own, looks, strict=True)
        ]
        work = run.forecast(first)
    except CepError as error:
        yield f"{name}: what it takes cannot be told: {printable(str(error), 500)}"
        return
    forecasts.append(work)
    more = ", at the first look" if any(len(sizes) > 1 for sizes in looks) else ""
    yield (
        f"{name}: {counted(work.samples, 'sample')}, {counted(work.units, run.unit)}, "
        f"{counted(work.steps, 'step')}, {work.stored} of them in the store{more}"
    )
    rows = []
    for need in work.needs:
        time = "unknown" if need.seconds is None else _time(need.seconds)
        row = (
            _name(need),
            str(len(need.stored)),
            f"{need.inputs}{'+' if need.incomplete else ''}",
            str(need.calls),
            printable(device_name(need.bound.device), 40),
            _size(_weights(evaluator, need.bound)),
            time if need.inputs else _UNKNOWN,
        )
        rows.append([Span(cell) for cell in row])
    yield from table_lines(_MODELS, [RowGroup(rows)], columns)


def _total_lines(
    evaluator: Evaluator, forecasts: Sequence[Forecast], leases: Leases
) -> Iterator[str]:
    """Of all suites: the models to load, where, and how long it takes."""
    needs = [need for forecast in forecasts for need in forecast.needs]
    if any(need.incomplete for need in needs):
        yield "+: and what follows from results that are yet to be made"
    busy = [need for need in needs if need.inputs or need.incomplete]
    if not busy:
        yield "everything is in the store: no model is loaded"
        return
    workers = max(1, len(leases.variables))
    # Each model is loaded once for all roles that share it.
    bounds = [need.bound for need in busy]
    models = {bound.resources.shares or f"{bound.role} {bound.spec}": bound for bound in bounds}
    sizes = [_weights(evaluator, bound) for bound in models.values()]
    known = [size for size in sizes if size is not None]
    load = f"{counted(len(models), 'model')} to load"
    if known:
        least = "" if len(known) == len(sizes) else "at least "
        swap = evaluator.settings.residency == "swap"
        whole = f"{_size(max(known))} of weights at a time" if swap else _size(sum(known))
        load += f", in turns, {least}{whole}" if swap else f", {least}{whole} of weights"
    yield f"{load}{' on each worker' if workers > 1 else ''}"
    if workers > 1 or leases.lines:
        yield (
            f"{counted(workers, 'worker')}{': ' if leases.lines else ' on the same cores'}"
            f"{'; '.join(leases.lines)}"
        )
    unknown = {_name(need) for need in busy if need.seconds is None}
    if unknown:
        of = counted(len({_name(need) for need in busy}), "model")
        yield (
            f"time not known: {len(unknown)} of {of} never worked on this kind of device long "
            "enough to tell"
        )
        return
    seconds = sum(need.seconds or 0.0 for need in busy)
    yield f"about {_time(seconds / workers)}, loading not counted"


def _weights(evaluator: Evaluator, bound: BoundRole) -> int | None:
    """Bytes of a model's weights; None where they are not known."""
    runners = evaluator.models.runners.items()
    spec = next(spec for (_, spec), runner in runners if runner.bound is bound)
    return weights_bytes(spec)


def _name(need: ModelSteps) -> str:
    return f"{need.bound.role} {printable(need.bound.spec, 60)}"


def _size(count: int | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 28 else f"{count / (1 << 20):.1f} MiB"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
