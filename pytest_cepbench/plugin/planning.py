"""The plan of a run: how every case would be judged, and how well it can be."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate.noise import reach
from pytest_cepbench.plugin.examining import planned_looks, read_references
from pytest_cepbench.plugin.process import Assigned, Process
from pytest_cepbench.report.text import number, printable

_UNKNOWN = "-"


def plan_lines(process: Process) -> Iterator[str]:
    """A line for each case that was collected, under a head; no model is bound and none is asked."""
    cases = list(process.assigned.values())
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
        visible, needed, said = _reach(process, one)
        uncalibrated |= visible == _UNKNOWN and one.policy.statistical
        gate = one.policy.gate if one.policy.primary else "informational"
        alpha = f"{one.policy.alpha:.2g}" if one.policy.statistical else _UNKNOWN
        looks = ", ".join(map(str, planned_looks(process, one.suite_file, one.case, one.policy)))
        yield (
            f"{name:{width}}  {gate:14} {alpha:>9} {number(one.policy.tolerance):>9} "
            f"{_units(process, one):>6} {visible:>9} {needed:>7}  {looks}{said}"
        )
    yield (
        "visible: the smallest drop that the units show with 80 % power; needed: units that show a "
        "drop of the tolerance; looks: samples, as far as they are needed"
    )
    if uncalibrated:
        yield "what is - is not known: `cepbench calibrate` measures it and keeps it with the baseline"


def _units(process: Process, one: Assigned) -> int:
    dataset = process.suite(one.suite_file).dataset
    return len({s.unit for name in one.case.categories for s in dataset.in_category(name)})


def _reach(process: Process, one: Assigned) -> tuple[str, str, str]:
    """Smallest visible drop, units needed, and what is wrong with the baseline."""
    try:
        baseline = read_references(process, one.case).baseline
    except BaselineError:
        return _UNKNOWN, _UNKNOWN, "  (unreadable baseline)"
    if baseline is None:
        return _UNKNOWN, _UNKNOWN, "  (no baseline)"
    if baseline.noise is None or not one.policy.statistical:
        return _UNKNOWN, _UNKNOWN, ""
    # Of a set metric the units are blocks of samples, as they were calibrated.
    units = baseline.noise.units if baseline.sizes else _units(process, one)
    found = reach(baseline.noise.sd, units, one.policy)
    needed = _UNKNOWN if found.needed is None else str(found.needed)
    return number(found.visible), needed, ""
