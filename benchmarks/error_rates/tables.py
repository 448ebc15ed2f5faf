"""The tables of the report: which figure stands where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose

from benchmarks.error_rates.figures import Column, Figure, percent, table, whole
from benchmarks.error_rates.labelled import LABELLED
from benchmarks.error_rates.looked_again import LOOKED_AGAIN, MEASURED
from benchmarks.error_rates.simulated import HARD_NAMES, Settings
from benchmarks.error_rates.trainings import DELAY, RULES, TRAINING, VALID

_EMBEDDED = "embedded"
_UNSEEN = "drift in "


def report(
    figures: Sequence[Figure], earlier: Sequence[Figure], settings: Settings
) -> dict[str, str]:
    """Heading -> table as Markdown; those without a figure are left out.

    earlier: the power of an earlier version, with which the last table compares.
    """
    apart = (_EMBEDDED, _UNSEEN, HARD_NAMES, TRAINING, LABELLED, LOOKED_AGAIN)
    usual = [f for f in figures if not f.world.startswith(apart)]
    trainings = [
        replace(f, world=f.world.removeprefix(TRAINING))
        for f in figures
        if f.world.startswith(TRAINING)
    ]
    hard = [
        replace(f, world=f.world.removeprefix(HARD_NAMES))
        for f in figures
        if f.world.startswith(HARD_NAMES)
    ]
    labelled = [
        replace(f, world=f.world.removeprefix(LABELLED))
        for f in figures
        if f.world.startswith(LABELLED)
    ]
    again = [
        replace(f, world=f.world.removeprefix(LOOKED_AGAIN))
        for f in figures
        if f.world.startswith(LOOKED_AGAIN)
    ]
    few = [f for f in figures if f.world.startswith(_UNSEEN)]
    played = [f for f in figures if f.world.startswith(_EMBEDDED)]
    parts = [
        ("False failures without drift, percent of runs", table(usual, list(_failures(settings)))),
        (
            "False passes of the non-inferiority gate at a drift of the tolerance, percent of runs",
            table(usual, list(_passes(settings))),
        ),
        ("Worlds that are hard on the bounds, percent of runs", table(hard, list(_hard(settings)))),
        (
            "Passes of the non-inferiority gate without drift, percent of cases",
            table(usual, _passed(settings)),
        ),
        ("Detection, percent of runs", table(usual, list(_detection(settings)))),
        ("Cases found by themselves and by the pooled verdict, percent", table(usual, _pooled())),
        ("Looking again: promises and detection, percent", table(usual, list(_looks(settings)))),
        ("Looking again: samples used, mean", table(usual, list(_used(settings)))),
        ("Plain thresholds, percent of runs", table(usual, list(_plain(settings)))),
        ("What no gate of n samples can see, percent", table(few, list(_unseen(settings)))),
        ("The embedded world, percent of runs", table(played, list(_played()))),
        ("People's labels of a part of the battles, percent", table(labelled, list(_labelled()))),
        ("Ways of looking again: false failures, percent", table(again, _ways("failures"))),
        ("Ways of looking again: false passes, percent", table(again, _ways("passes"))),
        ("Whole trainings: false stops, percent", table(trainings, list(_stops()))),
        ("Whole trainings: delays", table(trainings, list(_delays()))),
        ("Power against an earlier version, in points", _changes(earlier, usual, settings)),
    ]
    return {head: text for head, text in parts if text.count("\n") > 1}


def fill(page: str, tables: Mapping[str, str]) -> str:
    """The page with its tables replaced by those of the same columns.

    Raises ValueError where the page has no table of these columns, or more than one.
    """
    lines = page.split("\n")
    for head, text in tables.items():
        rows = text.split("\n")
        starts = [number for number, line in enumerate(lines) if line == rows[0]]
        if len(starts) != 1:
            raise ValueError(
                f"expected one table with the columns of {head!r}, found {len(starts)}: {rows[0]}"
            )
        end = start = starts[0]
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        lines[start:end] = rows
    return "\n".join(lines)


def _is(what: str, rule: str, cases: int | None = None, **near: float) -> Callable[[Figure], bool]:
    """Whether a figure is this one. near: fields that it must have, up to rounding."""

    def holds(figure: Figure) -> bool:
        return (
            (figure.what, figure.rule) == (what, rule)
            and cases in (None, figure.cases)
            and all(isclose(getattr(figure, name), x, abs_tol=1e-9) for name, x in near.items())
        )

    return holds


def _failures(settings: Settings) -> Iterator[Column]:
    for tolerance in (settings.tolerance, 0.0):
        for m in settings.cases:
            yield Column(
                f"{_cases(m)}, tolerance {tolerance:g}",
                _is("false failures", "regression", m, tolerance=tolerance),
                percent,
            )


def _passes(settings: Settings) -> Iterator[Column]:
    for m in settings.cases:
        yield Column(_cases(m), _is("false passes", "noninferiority", m), percent)
    for m in settings.cases[1:]:
        yield Column(
            f"one of {m}, in shares of alpha / {m}",
            _is("false passes of a case", "noninferiority", m),
            _in_shares,
        )


def _hard(settings: Settings) -> Iterator[Column]:
    for m in settings.cases:
        what = _is("false failures", "regression", m, tolerance=0.0)
        yield Column(f"false failures, {_cases(m)}", what, _if_promised)
    for m in settings.cases:
        what = _is("false passes", "noninferiority", m)
        yield Column(f"false passes, {_cases(m)}", what, _if_promised)


def _if_promised(figure: Figure) -> str:
    """In brackets where nothing is promised."""
    return percent(figure) if figure.promise is not None else f"({percent(figure)})"


def _labelled() -> Iterator[Column]:
    for what, rule in (("false failures", "regression"), ("false passes", "noninferiority")):
        for by in ("labels", "judge alone"):
            for m in (1, 10):
                held = _is(f"{what} of a case", f"{rule}, {by}", m)
                yield Column(f"{what}, {by}, {_cases(m)}", held, _if_promised)


def _ways(what: str) -> list[Column]:
    return [
        Column(
            f"false {what}: {way.name}",
            _is(f"false {what} of a case", way.name),
            percent,
        )
        for way in MEASURED
    ]


def _passed(settings: Settings) -> list[Column]:
    return [Column(_cases(m), _is("passed", "noninferiority", m), percent) for m in settings.cases]


def _in_shares(figure: Figure) -> str:
    assert figure.promise is not None  # the rate of a case is promised its share
    return f"{figure.value / figure.promise:.2f} ± {figure.error / figure.promise:.2f}"


def _detection(settings: Settings) -> Iterator[Column]:
    for times in (1, 2, 4):
        for m in settings.cases:
            drift = times * settings.tolerance
            yield Column(
                f"{times} x, {_cases(m)}", _is("detected", "regression", m, drift=drift), percent
            )


def _pooled() -> list[Column]:
    return [
        Column(
            f"{'pooled' if rule == 'Holm' else 'alone'}, {drifting}, {times} x",
            _times(_is(f"found, {drifting}", rule), times),
            percent,
        )
        for drifting in ("one case drifts", "all cases drift")
        for times in (2, 4)
        for rule in ("regression", "Holm")
    ]


def _times(holds: Callable[[Figure], bool], times: int) -> Callable[[Figure], bool]:
    return lambda figure: (
        holds(figure) and isclose(figure.drift, times * figure.tolerance, abs_tol=1e-9)
    )


LOOKED = (1, 14)
"""Cases of the runs that look again: every look of every case has to be judged."""


def _looks(settings: Settings) -> Iterator[Column]:
    for m in LOOKED:
        yield Column(f"false failures, {_cases(m)}", _is("false failures", "more", m), percent)
        yield Column(f"false passes, {_cases(m)}", _is("false passes", "more", m), percent)
        for times in (2, 4):
            drift = times * settings.tolerance
            yield Column(
                f"detected {times} x, {_cases(m)}",
                _is("detected", "more", m, drift=drift),
                percent,
            )


def _used(settings: Settings) -> Iterator[Column]:
    for m in LOOKED:
        for times in (0, 1, 2, 4):
            drift = times * settings.tolerance
            yield Column(
                f"{_cases(m)}, {times} x", _is("samples used", "more", m, drift=drift), whole
            )


def _plain(settings: Settings) -> Iterator[Column]:
    for rule in ("paired threshold", "unpaired threshold"):
        name = rule.partition(" ")[0]
        for m in settings.cases:
            yield Column(
                f"{name}: false failures, {_cases(m)}", _is("false failures", rule, m), percent
            )
        for times in (2, 4):
            drift = times * settings.tolerance
            yield Column(
                f"{name}: detected {times} x", _is("detected", rule, 1, drift=drift), percent
            )


def _unseen(settings: Settings) -> Iterator[Column]:
    yield Column("holds none of them", _is("false passes", "noninferiority", 1), _none_of_them)
    yield Column("false passes", _is("false passes", "noninferiority", 1), percent)
    for times in (2, 4):
        drift = times * settings.tolerance
        yield Column(f"detected {times} x", _is("detected", "regression", 1, drift=drift), percent)


def _none_of_them(figure: Figure) -> str:
    share = float(figure.world.removeprefix(_UNSEEN).partition("%")[0]) / 100
    return f"{100 * (1 - share) ** figure.n:.1f}"


def _played() -> Iterator[Column]:
    for m in (1, 14):
        yield Column(
            f"false failures, {_cases(m)}", _is("false failures", "regression", m), percent
        )
        yield Column(
            f"false passes, {_cases(m)}", _is("false passes", "noninferiority", m), percent
        )
    for times in (2, 4):
        yield Column(f"detected {times} x", _times(_is("detected", "regression"), times), percent)
    for rule in ("paired threshold",):
        yield Column("paired threshold: false failures", _is("false failures", rule), percent)
        for times in (2, 4):
            yield Column(
                f"paired threshold: detected {times} x",
                _times(_is("detected", rule), times),
                percent,
            )


def _stops() -> Iterator[Column]:
    for rule in RULES:
        yield Column(f"stopped, {rule}", _is("false stops", rule), percent)


def _delays() -> Iterator[Column]:
    for rule in VALID:
        yield Column(f"80 % found after, {rule}", _is(DELAY, rule), lambda f: f"{f.value:.0f}")
    for rule in VALID:
        yield Column(f"found at last, {rule}", _is("found", rule), percent)


def _cases(m: int) -> str:
    return "1 case" if m == 1 else f"{m} cases"


def _changes(before: Sequence[Figure], after: Sequence[Figure], settings: Settings) -> str:
    """What passes without drift and what is detected, in points above an earlier version's."""
    earlier = {_place(figure): figure.value for figure in before}
    moved = [
        replace(figure, value=figure.value - earlier[_place(figure)])
        for figure in after
        if _place(figure) in earlier
    ]
    kinds = [("passed", "noninferiority", 0), *(("detected", "regression", k) for k in (1, 2, 4))]
    columns = [
        Column(
            f"{f'{times} x' if times else 'passes'}, {_cases(m)}, change",
            _is(what, rule, m, drift=times * settings.tolerance),
            _points,
        )
        for what, rule, times in kinds
        for m in settings.cases
    ]
    return table(moved, columns)


def _place(figure: Figure) -> tuple[str, str, str, int, int, float]:
    return (
        figure.what, figure.rule, figure.world, figure.n, figure.cases, round(figure.drift, 9)
    )  # fmt: skip


def _points(figure: Figure) -> str:
    return f"{100 * figure.value:+.1f}"
