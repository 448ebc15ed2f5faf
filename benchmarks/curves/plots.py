"""The plots of the page: curves of both series, and metrics against the truth. Needs matplotlib.

Files are the same for the same figures: no date, no random names, no decimals too small to be seen.
They bring a light ground of their own, so that a page shows them alike in light and in dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.curves.figures import Course, Document, SeriesFigures, digest
from benchmarks.curves.lineups import Role
from benchmarks.curves.resampling import Estimate

# Of the palette of Okabe and Ito, which stays apart for all kinds of color vision.
_BLUE, _ORANGE, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_GRAY, _DARK = "#767676", "#222222"

_STYLE: Any = {
    "svg.hashsalt": "pytest-cepbench",
    "svg.fonttype": "none",  # as letters: paths would make the files four times as large
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.edgecolor": _GRAY,
    "axes.labelcolor": _DARK,
    "text.color": _DARK,
    "xtick.color": _DARK,
    "ytick.color": _DARK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e2e2e2",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "figure.facecolor": "#ffffff",
}

_DECIMALS = re.compile(r"-?\d+\.\d{3,}")

_MARKS: dict[Role, tuple[str, str]] = {"describer": (_BLUE, "o"), "generator": (_ORANGE, "s")}

_ALONE = ("gc", "sim", "mcd", "geneval", "mgg", "gc_fid", "fid", "kid")
"""Metrics with a panel of their own."""

_MAPPINGS = ("text-to-text", "text-to-image", "image-to-image", "image-to-text")

_COLORS = (_BLUE, _ORANGE, _GREEN, _PURPLE, _DARK)

_STYLES = ("-", "--", "-.", ":", "-")


def draw_all(document: Document, folder: Path) -> list[Path]:
    """Write an SVG file of the curves of each series, and one of metrics against the truth.

    Each names the figures that it shows, see `figures.digest`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mark = f"figures {digest(document)}"
    with mpl.rc_context(_STYLE):
        return [
            *(
                _save(_curves(figures), folder / f"curves-{figures.role}s.svg", mark)
                for figures in document.series
            ),
            _save(_against_truth(document), folder / "curves-truth.svg", mark),
        ]


def _save(figure: Any, path: Path, mark: str) -> Path:
    """mark: names the figures, so that a drawing of older ones is found."""
    drawn = StringIO()
    metadata = {"Date": None, "Creator": None, "Description": mark}
    figure.savefig(drawn, format="svg", metadata=metadata)
    plt.close(figure)
    path.write_text(_shortened(drawn.getvalue()), encoding="utf-8")
    return path


def _shortened(text: str) -> str:
    """A drawing without what is not seen: far decimals, indents, unused names, repeated styles."""
    text = _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"|^\s+|\s+$', "", text, flags=re.MULTILINE)
    used = set(re.findall(r"#([\w.]+)", text))
    text = re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in used else "", text)
    text = re.sub(r"<g>\n<g>\n(<use [^>]*>)\n</g>\n</g>", r"\1", text)
    styles = dict.fromkeys(re.findall(r' style="([^"]*)"', text))
    names = {style: f"s{number}" for number, style in enumerate(styles)}
    text = re.sub(r' style="([^"]*)"', lambda style: f' class="{names[style[1]]}"', text)
    rules = "".join(f".{name}{{{style}}}\n" for style, name in names.items())
    return text.replace("</style>", f"\n{rules}</style>", 1) + "\n"


def _curves(series: SeriesFigures) -> Any:
    """A panel for each metric, one for the mappings, and three for the truth."""
    figure, axes = plt.subplots(4, 3, figsize=(9.0, 9.6), layout="constrained", sharex=True)
    panels = iter(axes.flat)
    for course in _named(series.courses, _ALONE):
        _panel(next(panels), course, series)
    _lines(next(panels), series, "MCD by mapping", [
        (name, course) for name in _MAPPINGS for course in _named(series.courses, [f"mcd {name}"])
    ])  # fmt: skip
    whole = [course for course in series.truths if course.suite == series.truths[0].suite]
    own = [(course.suite, course) for course in series.truths if course.name == "own"]
    ends = [(course.suite, course) for course in series.truths if course.name == "exact"]
    kept = [(course.name, course) for course in whole if course.name not in ("own", "exact")]
    _lines(next(panels), series, f"truth: exact where the {series.role} first acts", own)
    _lines(next(panels), series, "truth: exact at the end", ends)
    _lines(next(panels), series, f"truth: F1 at the end, {whole[0].suite}", kept)
    for below in axes[-1]:
        below.set_xlabel("training step, log scale")
    other = "generator" if series.role == "describer" else "describer"
    figure.suptitle(
        f"{series.role}s by training step, with the {other} of step {series.fixed}; "
        "bars: 95 % intervals over samples",
        fontsize=9,
    )
    return figure


def _panel(axes: Axes, course: Course, series: SeriesFigures) -> None:
    """A metric with what its chains keep and what a perfect pair reaches."""
    color, mark = _MARKS[series.role]
    _frame(
        axes,
        series,
        f"{course.label} ({'higher' if course.higher_is_better else 'lower'} is better)",
    )
    _course(axes, series.steps, course.points, color=color, marker=mark, label="metric")
    if course.higher_is_better:
        _course(
            axes, series.steps, course.kept["objects"],
            color=_GRAY, marker="D", label="object F1", linestyle="--", markerfacecolor="white",
        )  # fmt: skip
        axes.set_ylim(-0.02, 1.04)
    if course.perfect is not None:
        axes.axhline(
            course.perfect, color=_GREEN, linestyle=":", linewidth=1.2, label="perfect pair"
        )
    axes.legend(loc="best")


def _lines(
    axes: Axes, series: SeriesFigures, title: str, courses: Sequence[tuple[str, Course]]
) -> None:
    """Several courses of the same unit, told apart by color and by style."""
    _frame(axes, series, title)
    axes.set_ylim(-0.02, 1.04)
    for (name, course), color, style in zip(courses, _COLORS, _STYLES, strict=False):
        _course(axes, series.steps, course.points, color=color, linestyle=style, label=name)
    axes.legend(loc="best")


def _frame(axes: Axes, series: SeriesFigures, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xscale("log")
    axes.set_xticks(series.steps, [str(step) for step in series.steps], rotation=60, fontsize=7)
    axes.set_xticks([], minor=True)


def _course(
    axes: Axes, steps: Sequence[int], points: Sequence[Estimate | None], **looks: Any
) -> None:
    there = [(step, point) for step, point in zip(steps, points, strict=True) if point is not None]
    usual: dict[str, Any] = {
        "linewidth": 1.3,
        "markersize": 3.5,
        "marker": ".",
        "elinewidth": 0.9,
        "clip_on": False,
    }
    axes.errorbar(
        [step for step, _ in there],
        [point.value for _, point in there],
        yerr=_bars([point for _, point in there]),
        **(usual | looks),
    )


def _against_truth(document: Document) -> Any:
    """Each metric against the object F1 of the last artifacts that it reads."""
    figure, axes = plt.subplots(2, 4, figsize=(9.6, 5.0), layout="constrained")
    for panel, name in zip(axes.flat, _ALONE, strict=True):
        for series in document.series:
            for course in _named(series.courses, [name]):
                panel.set_title(course.label, loc="left")
                panel.set_xlabel("object F1 of the same chains")
                panel.set_xlim(-0.03, 1.04)
                _scatter(panel, series, course)
    axes.flat[0].legend(loc="best")
    figure.suptitle(
        "metrics against what the chains kept; one point per checkpoint, lines follow the training",
        fontsize=9,
    )
    return figure


def _scatter(axes: Axes, series: SeriesFigures, course: Course) -> None:
    color, mark = _MARKS[series.role]
    both = [
        (kept, point)
        for kept, point in zip(course.kept["objects"], course.points, strict=True)
        if point is not None
    ]
    across, up = [point for point, _ in both], [point for _, point in both]
    axes.errorbar(
        [point.value for point in across], [point.value for point in up],
        xerr=_bars(across), yerr=_bars(up),
        color=color, marker=mark, markersize=4, linewidth=0.7, elinewidth=0.9,
        label=f"{series.role}s",
    )  # fmt: skip


def _bars(points: Sequence[Estimate]) -> list[list[float]]:
    """Lengths down and up, as errorbar takes them; none below 0, which rounding could give."""
    return [
        [0.0 if point.low is None else max(0.0, point.value - point.low) for point in points],
        [0.0 if point.high is None else max(0.0, point.high - point.value) for point in points],
    ]


def _named(courses: Sequence[Course], names: Sequence[str]) -> Iterator[Course]:
    """The courses of these names, in the order of the names, without failures and twins."""
    for name in names:
        yield from (course for course in courses if course.name == name)
