"""The tables of the page: Markdown made of the figures, and put between the page's marks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.curves.analysis import Fall, Tau
from benchmarks.curves.figures import HIGH, Course, Document, Kept, SeriesFigures
from benchmarks.curves.resampling import Estimate

NONE = "-"

_MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_SHIPPED = "shipped-"
"""Begins the names of the tables about the shipped checkpoints alone."""

_BESIDE = frozenset(
    ("gc", "truth", "truth1", "truth_text", "retrieval", "diversity", "repetition", "length")
)
"""Metrics of these tables: GC, and those that the published series were not measured with."""

_SHOWN = ("exact", "objects", "cell", "shape", "color", "size")


def all_tables(document: Document) -> dict[str, str]:
    """Name -> table: one of the run, the others of each series."""
    tables = {"run": _run(document)}
    for series in document.series:
        made = {name: make(series) for name, make in _OF_A_SERIES.items()}
        tables |= {f"{series.role}-{name}": text for name, text in made.items()}
    return tables


def report(document: Document) -> str:
    """All tables, each below its name."""
    return "\n".join(f"## {name}\n\n{text}\n" for name, text in all_tables(document).items())


def fill_in(page: str, document: Document) -> str:
    """The page with the tables of these figures between its marks.

    `<!-- figures: NAME -->` and `<!-- end -->` stand around each. Raises ValueError for a name that
    no table has, and where a table has no place.
    """
    return _between_marks(page, all_tables(document), shipped=False)


def fill_in_shipped(page: str, document: Document) -> str:
    """The same for the tables about the shipped checkpoints alone, under names of their own."""
    series = {each.role: each for each in document.series}
    rows = {
        role: replace(each, courses=tuple(c for c in each.courses if c.name in _BESIDE), truths=())
        for role, each in series.items()
    }
    tables = {
        "run": _run(document),
        "describer-values": _values(rows["describer"]),
        "describer-taus": _taus(rows["describer"]),
        "describer-within": _within("exact")(rows["describer"]),
        "generator-values": _values(rows["generator"]),
    }
    named = {f"{_SHIPPED}{name}": text for name, text in tables.items()}
    return _between_marks(page, named, shipped=True)


def _between_marks(page: str, tables: Mapping[str, str], *, shipped: bool) -> str:
    marks = [name for _, name, _ in _MARKED.findall(page)]
    named = [name for name in marks if name.startswith(_SHIPPED) == shipped]
    if sorted(named) != sorted(tables):
        lost = ", ".join(sorted(set(named) ^ set(tables))) or "one is there twice"
        raise ValueError(f"the page's marks and the tables do not agree: {lost}")
    return _MARKED.sub(
        lambda m: f"{m[1]}\n{tables[m[2]]}\n\n{m[3]}" if m[2] in tables else m[0], page
    )


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
        [course.label, *map(_with_half, course.points), _number(course.perfect)]
        for course in (*_measured(series), *_own_truths(series))
    ]
    return _table(heads, rows)


def _own_truths(series: SeriesFigures) -> Iterator[Course]:
    """The truth of the whole chains of each suite, named for a reader."""
    names = {
        "own": "exact scenes, first acting",
        "exact": "exact scenes, end",
        "objects": "object F1, end",
    }
    for course in series.truths:
        if course.name in names:
            yield replace(course, label=f"*{course.suite}: {names[course.name]}*")


def _says(series: SeriesFigures) -> str:
    heads = (
        "",
        "better is",
        "in order",
        "falls beyond noise",
        "level from step",
        "order differs from the truth's",
    )
    rows = [
        (
            course.label,
            "higher" if course.higher_is_better else "lower",
            NONE if course.ordered is None else ("yes" if course.ordered else "no"),
            NONE if course.ordered is None else ("; ".join(map(_fall, course.falls)) or "none"),
            _level(course, series.steps),
            "; ".join(f"{a}, {b}" for a, b in course.disordered) or NONE,
        )
        for course in (*_measured(series), *_own_truths(series))
    ]
    return _table(heads, rows)


def _level(course: Course, steps: Sequence[int]) -> str:
    if course.ordered is None:
        return NONE
    if course.saturates is None:
        return "not before the last"
    return "all" if course.saturates == steps[0] else str(course.saturates)


def _fall(fall: Fall) -> str:
    return f"{fall.earlier} to {fall.later} ({fall.change.value:+.3f})"


def _taus(series: SeriesFigures) -> str:
    heads = (
        "",
        "with the step",
        "exact, first acting",
        "exact, last read",
        "object F1, last read",
        "last read",
    )
    rows = [
        (
            course.label,
            *(_tau(course.tau.get(n)) for n in ("step", "own", "exact", "objects")),
            course.reach,
        )
        for course in _measured(series)
    ]
    return _table(heads, rows)


def _tau(tau: Tau | None) -> str:
    if tau is None:
        return NONE
    return f"{tau.value:.2f} {_ends(tau.low, tau.high)}, {_p(tau.p)}"


def _p(p: float) -> str:
    if p < 0.0001:
        return "p < 0.0001"
    return f"p {p:.4f}" if p < 0.01 else f"p {p:.2f}"


def _within(aspect: str) -> Callable[[SeriesFigures], str]:
    def make(series: SeriesFigures) -> str:
        rows = [
            [course.label, *map(_with_ends, course.within[aspect])]
            for course in _measured(series)
            if aspect in course.within and any(course.within[aspect])
        ]
        return _table(["", *map(str, series.steps)], rows)

    return make


def _beside(series: SeriesFigures) -> str:
    heads = [
        "step",
        "GC@3",
        *_SHOWN,
        f"chains with GC@3 of {HIGH:g} or more",
        "of these, scene not kept",
        "least object F1 of these",
    ]
    rows = [
        [
            str(figures.step),
            _with_half(figures.score),
            *(_with_half(figures.kept[aspect]) for aspect in _SHOWN),
            str(figures.high),
            str(figures.lost),
            _number(figures.worst),
        ]
        for figures in series.beside
    ]
    return _table(heads, rows)


def _kept(series: SeriesFigures) -> str:
    longest = max(len(rows[0]) for kept in series.kept for rows in kept.aspects.values())
    heads = ["chains", "step", *(f"{generation}" for generation in range(longest))]
    rows = [row for kept in series.kept for row in _kept_rows(kept, series.steps, longest)]
    return _table(heads, rows)


def _kept_rows(kept: Kept, steps: Sequence[int], longest: int) -> Iterator[list[str]]:
    for step, shares in zip(steps, kept.aspects["exact"], strict=True):
        cells = [f"{100 * share:.0f}" for share in shares]
        name = f"{kept.suite}, {kept.start}-first, n = {kept.samples}"
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
    """Courses with a number for some checkpoint; a failure rate of 0 throughout says nothing.

    Where several suites have a metric of one label, their names stand beside it.
    """
    labels = Counter(course.label for course in series.courses)
    for course in series.courses:
        values = [point.value for point in course.points if point is not None]
        if values and not (course.name == "failures" and not any(values)):
            several = labels[course.label] > 1
            yield replace(course, label=f"{course.label}, {course.suite}") if several else course


def _with_half(point: Estimate | None) -> str:
    """With half the width of the interval."""
    if point is None or point.low is None or point.high is None:
        return NONE if point is None else _number(point.value)
    return f"{_number(point.value)} ± {_number((point.high - point.low) / 2)}"


def _with_ends(point: Estimate | None) -> str:
    return NONE if point is None else f"{point.value:.2f} {_ends(point.low, point.high)}"


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
