"""The tables of the page: Markdown made of the figures, and put between the page's marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.curves.analysis import Fall, Tau
from benchmarks.curves.figures import HIGH, Course, Document, Kept, SeriesFigures
from benchmarks.curves.resampling import Estimate

NONE = "-"

_MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_SHOWN = ("exact", "objects", "cell", "shape", "color", "size")


def all_tables(document: Document) -> dict[str, str]:
    """Name -> table: one of the run, the others of each series."""
    found = {"run": _run(document)}
    for series in document.series:
        made = {name: make(series) for name, make in _OF_A_SERIES.items()}
        found |= {f"{series.role}-{name}": text for name, text in made.items()}
    return found


def report(document: Document) -> str:
    """All tables, each below its name."""
    return "\n".join(f"## {name}\n\n{text}\n" for name, text in all_tables(document).items())


def fill_in(page: str, document: Document) -> str:
    """The page with the tables of these figures between its marks.

    `<!-- figures: NAME -->` and `<!-- end -->` stand around each. Raises ValueError for a name that
    no table has, and where a table has no place.
    """
    tables = all_tables(document)
    named = [name for _, name, _ in _MARKED.findall(page)]
    if sorted(named) != sorted(tables):
        lost = ", ".join(sorted(set(named) ^ set(tables))) or "one is there twice"
        msg = f"the page's marks and the tables do not agree: {lost}"
        raise ValueError(msg)
    return _MARKED.sub(lambda m: f"{m[1]}\n{tables[m[2]]}\n\n{m[3]}", page)


def _run(document: Document) -> str:
    samples = ", ".join(f"{name} {count}" for name, count in document.samples.items())
    versions = ", ".join(f"{name} {number}" for name, number in document.versions.items())
    rows = [
        ("command", f"`{document.command}`"),
        ("machine", document.machine),
        ("versions", versions),
        ("wall time", f"{document.seconds:.0f} s, what was in the store already not counted"),
        ("samples", samples),
        ("draws of the bootstrap", str(document.draws)),
    ]
    for series in document.series:
        steps = ", ".join(map(str, series.steps))
        rows.append((f"{series.role}s", f"steps {steps}; {_other(series)} of step {series.fixed}"))
        rows.append((f"chains of {series.role}s that stopped", str(sum(series.stopped))))
    return _table(("", ""), rows)


def _other(series: SeriesFigures) -> str:
    return "generator" if series.role == "describer" else "describer"


def _values(series: SeriesFigures) -> str:
    heads = ["", *map(str, series.steps), "perfect pair"]
    rows = [
        [one.label, *map(_with_half, one.points), _number(one.perfect)]
        for one in (*_measured(series), *_own_truths(series))
    ]
    return _table(heads, rows)


def _own_truths(series: SeriesFigures) -> Iterator[Course]:
    """The truth of the whole chains of each suite, named for a reader."""
    names = {"own": "exact scenes, first acting", "exact": "exact scenes, end", "objects": "object F1, end"}  # fmt: skip
    for one in series.truths:
        if one.name in names:
            yield replace(one, label=f"*{one.suite}: {names[one.name]}*")


def _says(series: SeriesFigures) -> str:
    heads = ("", "better is", "in order", "falls beyond noise", "level from step", "order differs from the truth's")  # fmt: skip
    rows = [
        (
            one.label,
            "higher" if one.higher_is_better else "lower",
            NONE if one.ordered is None else ("yes" if one.ordered else "no"),
            NONE if one.ordered is None else ("; ".join(map(_fall, one.falls)) or "none"),
            _level(one, series.steps),
            "; ".join(f"{a}, {b}" for a, b in one.disordered) or NONE,
        )
        for one in (*_measured(series), *_own_truths(series))
    ]
    return _table(heads, rows)


def _level(course: Course, steps: Sequence[int]) -> str:
    if course.ordered is None:
        return NONE
    if course.saturates is None:
        return "not before the last"
    return "all" if course.saturates == steps[0] else str(course.saturates)


def _fall(one: Fall) -> str:
    return f"{one.earlier} to {one.later} ({one.change.value:+.3f})"


def _taus(series: SeriesFigures) -> str:
    heads = ("", "with the step", "exact, first acting", "exact, last read", "object F1, last read", "last read")  # fmt: skip
    rows = [
        (one.label, *(_tau(one.tau.get(n)) for n in ("step", "own", "exact", "objects")), one.reach)
        for one in _measured(series)
    ]
    return _table(heads, rows)


def _tau(one: Tau | None) -> str:
    if one is None:
        return NONE
    return f"{one.value:.2f} {_ends(one.low, one.high)}, {_p(one.p)}"


def _p(p: float) -> str:
    if p < 0.0001:
        return "p < 0.0001"
    return f"p {p:.4f}" if p < 0.01 else f"p {p:.2f}"


def _within(aspect: str) -> Callable[[SeriesFigures], str]:
    def make(series: SeriesFigures) -> str:
        rows = [
            [one.label, *map(_with_ends, one.within[aspect])]
            for one in _measured(series)
            if aspect in one.within and any(one.within[aspect])
        ]
        return _table(["", *map(str, series.steps)], rows)

    return make


def _beside(series: SeriesFigures) -> str:
    heads = ["step", "GC@3", *_SHOWN, f"chains with GC@3 of {HIGH:g} or more", "of these, scene not kept", "least object F1 of these"]  # fmt: skip
    rows = [
        [
            str(one.step),
            _with_half(one.score),
            *(_with_half(one.kept[aspect]) for aspect in _SHOWN),
            str(one.high),
            str(one.lost),
            _number(one.worst),
        ]
        for one in series.beside
    ]
    return _table(heads, rows)


def _kept(series: SeriesFigures) -> str:
    longest = max(len(rows[0]) for one in series.kept for rows in one.aspects.values())
    heads = ["chains", "step", *(f"{generation}" for generation in range(longest))]
    rows = [row for one in series.kept for row in _kept_rows(one, series.steps, longest)]
    return _table(heads, rows)


def _kept_rows(one: Kept, steps: Sequence[int], longest: int) -> Iterator[list[str]]:
    for step, shares in zip(steps, one.aspects["exact"], strict=True):
        cells = [f"{100 * share:.0f}" for share in shares]
        name = f"{one.suite}, {one.start}-first, n = {one.samples}"
        yield [name, str(step), *cells, *[""] * (longest - len(cells))]


_OF_A_SERIES: Mapping[str, Callable[[SeriesFigures], str]] = {
    "values": _values,
    "says": _says,
    "taus": _taus,
    "within-exact": _within("exact"),
    "within-objects": _within("objects"),
    "beside": _beside,
    "kept": _kept,
}


def _measured(series: SeriesFigures) -> Iterator[Course]:
    """Courses with a number for some checkpoint; a rate of failures that is always 0 says nothing."""
    for one in series.courses:
        values = [point.value for point in one.points if point is not None]
        if values and not (one.name == "failures" and not any(values)):
            yield one


def _with_half(one: Estimate | None) -> str:
    """With half the width of the interval."""
    if one is None or one.low is None or one.high is None:
        return NONE if one is None else _number(one.value)
    return f"{_number(one.value)} ± {_number((one.high - one.low) / 2)}"


def _with_ends(one: Estimate | None) -> str:
    return NONE if one is None else f"{one.value:.2f} {_ends(one.low, one.high)}"


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(_line(cells) for cells in (heads, ["---"] * len(heads), *rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
