"""The history case by case: which runs judged it, and where it became another measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pytest_cepbench.errors import HistoryError, did_you_mean
from pytest_cepbench.report.history.file import History, HistoryCase, HistoryModel, HistoryRun

_BARS = "▁▂▃▄▅▆▇█"

_NO_VALUE, _BREAK = ".", "|"


@dataclass(frozen=True)
class Selection:
    """The part of a history that is asked for; empty texts and sequences ask for all.

    suites: their names.
    cases: patterns of SUITE/PART/METRIC, with *, ? and [...].
    models: patterns of the specs of models under test.
    last: most runs, the latest ones; None for all.
    """

    suites: Sequence[str] = ()
    cases: Sequence[str] = ()
    models: Sequence[str] = ()
    last: int | None = None


@dataclass(frozen=True)
class Timeline:
    """One case over the runs that judged it, the earliest first.

    case: SUITE/PART/METRIC.
    runs, points: the runs, and what each said of the case.
    breaks: points that were measured otherwise than those before: their values do not compare.
    """

    case: str
    runs: tuple[HistoryRun, ...]
    points: tuple[HistoryCase, ...]
    breaks: tuple[int, ...]

    @property
    def suite(self) -> str:
        """The name of its suite."""
        return self.case.partition("/")[0]

    @property
    def latest(self) -> HistoryCase:
        """What the latest run said."""
        return self.points[-1]

    def model(self, index: int) -> HistoryModel:
        """The model under test of a point."""
        return self.runs[index].models[self.points[index].model]

    def identity_before(self, index: int) -> str:
        """Digest of the identity that held before a break."""
        before = (self.points[place].identity for place in range(index - 1, -1, -1))
        return next(filter(None, before), "")

    def sparkline(self, most: int = 24) -> str:
        """The latest values as bars, higher is higher; `|` at a break, `.` for none."""
        start = max(0, len(self.points) - most)
        shown = self.points[start:]
        values = [point.value for point in shown if point.value is not None]
        low, high = min(values, default=0.0), max(values, default=0.0)
        step = (high - low) / (len(_BARS) - 1)
        breaks = set(self.breaks)
        return "".join(
            (_BREAK if index in breaks else "") + _bar(point.value, low, step)
            for index, point in enumerate(shown, start)
        )


@dataclass(slots=True)
class _Judged:
    """A timeline that grows. identity: digest of the latest that is known."""

    runs: list[HistoryRun] = field(default_factory=list)
    points: list[HistoryCase] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    identity: str = ""


def _bar(value: float | None, low: float, step: float) -> str:
    if value is None:
        return _NO_VALUE
    return _BARS[round((value - low) / step)] if step else _BARS[len(_BARS) // 2]


def select_runs(history: History, selection: Selection) -> tuple[HistoryRun, ...]:
    """The runs that a selection of models and of the latest runs asks for.

    Raises HistoryError where the history is empty, or no model is like a pattern.
    """
    runs = history.runs
    if not runs:
        raise HistoryError(
            f"history {str(history.folder)!r} has no run yet: run pytest on a suite first"
        )
    if selection.models:
        specs = {model.spec for run in runs for model in run.models}
        wanted = {spec for spec in specs if _is_like(spec, selection.models)}
        if not wanted:
            raise HistoryError(_nothing("model", selection.models, specs))
        runs = tuple(run for run in runs if any(model.spec in wanted for model in run.models))
    return runs if selection.last is None else runs[-selection.last :]


def timelines_of(runs: Iterable[HistoryRun], selection: Selection) -> list[Timeline]:
    """Every case that is asked for over some runs, in the order in which runs judged them first.

    Raises HistoryError where no case is asked for.
    """
    judged: dict[str, _Judged] = {}
    # Run by run, as the cases lie in memory: case by case would take several times as long.
    for run in runs:
        for case in run.cases:
            known = judged.get(case.case)
            if known is None:
                known = judged[case.case] = _Judged()
            if case.identity != known.identity and case.identity:
                if known.identity:
                    known.breaks.append(len(known.points))
                known.identity = case.identity
            known.runs.append(run)
            known.points.append(case)
    suites = {name.partition("/")[0] for name in judged}
    for suite in selection.suites:
        if suite not in suites:
            raise HistoryError(_nothing("suite", [suite], suites))
    timelines = [
        Timeline(name, tuple(known.runs), tuple(known.points), tuple(known.breaks))
        for name, known in judged.items()
        if not selection.suites or name.partition("/")[0] in selection.suites
        if not selection.cases or _is_like(name, selection.cases)
    ]
    if not timelines:
        raise HistoryError(_nothing("case", selection.cases, judged))
    order = {suite: place for place, suite in enumerate(dict.fromkeys(t.suite for t in timelines))}
    return sorted(timelines, key=lambda timeline: order[timeline.suite])


def _is_like(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _nothing(what: str, patterns: Sequence[str], known: Iterable[str]) -> str:
    shown = ", ".join(repr(pattern) for pattern in patterns)
    return (
        f"the history has no {what} {shown}.{did_you_mean(patterns[0], known) if patterns else ''}"
    )


def break_reasons(timeline: Timeline, history: History) -> Iterator[tuple[int, str]]:
    """Each break of a case, and the fields of its identity that changed, where they are known."""
    from pytest_cepbench.report.history.file import changed_fields

    for index in timeline.breaks:
        before = history.identity(timeline.identity_before(index))
        fields = list(changed_fields(before, history.identity(timeline.points[index].identity)))
        yield index, ", ".join(fields) or "identity"
