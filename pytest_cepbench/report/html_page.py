"""The run as an HTML page, which needs nothing beside itself or has its files in a folder."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from pytest_cepbench.escapes import visible
from pytest_cepbench.report.case_table import (
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    settings_of,
)
from pytest_cepbench.report.number_format import between, number, word_of
from pytest_cepbench.report.page_images import FileSource, ImageSource, PageImages
from pytest_cepbench.report.page_overview import (
    case_anchor,
    causes,
    sample_anchor,
    worst_case,
    worst_samples,
)
from pytest_cepbench.report.provenance import comparisons, moment
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    error_lines,
    improvement_lines,
    judge_lines,
)
from pytest_cepbench.report.writers import RunFacts

STYLESHEET, SCRIPT = "page.css", "page.js"
"""Files of the page's look and behavior; everything is readable without the script."""

COURSE = (120, 32)

INTERVAL = (172, 24)
"""Width and height in pixels."""

_NEAREST, _FARTHEST = 2.0, 8.0
"""Tolerances between the middle and the edge of an interval plot."""


def html_page(
    facts: RunFacts,
    results: Sequence[CaseResult],
    image: ImageSource,
    *,
    folder: Path | None = None,
    file: FileSource = lambda _: None,
) -> str:
    """The run as HTML. Everything that models, files or users named is escaped, and `visible`.

    image: gives a stored image by digest, or None when it is gone.
    folder: where the images of the page become files, beside `page_files`; the page needs nothing
    beside itself where it is None. Raises OSError where one cannot be written.
    file: gives the stored file of an image, which is copied into the folder.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
    )
    environment.tests |= {"noteworthy": _noteworthy}
    environment.globals |= {function.__name__: function for function in _FUNCTIONS}
    passed = sum(result.passes for result in results)
    page_images = PageImages(image, folder, file)
    return environment.get_template("page.html.jinja").render(
        facts=facts,
        results=results,
        summary=[
            f"{passed} of {len(results)} cases pass: {counts_line(results)}",
            *error_lines(results),
            effort_line(facts.efforts(results)),
            *judge_lines(results),
            *improvement_lines(results),
        ],
        images=page_images,
        picture=page_images.get,
        opened=worst_case(results) or next(filter(replaces_answers, results), None),
        stylesheet=_resource(STYLESHEET),
        script=_resource(SCRIPT),
        script_digest=_script_digest(),
        course_size=COURSE,
        interval_size=INTERVAL,
    )


def page_files() -> dict[str, str]:
    """Name -> text of the files that a page with a folder needs beside itself."""
    return {name: _resource(name) for name in (STYLESHEET, SCRIPT)}


def _template_source(name: str) -> str | None:
    template = resources.files(__package__).joinpath(name)
    return template.read_text(encoding="utf-8") if template.is_file() else None


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _script_digest() -> str:
    """Of the only script that the page's policy lets run."""
    return base64.b64encode(sha256(_resource(SCRIPT).encode()).digest()).decode()


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it; what macros made is of such texts already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value


def _noteworthy(result: CaseResult) -> bool:
    """True where the details of a case are shown by themselves, not folded away with others."""
    remarkable = bool(
        result.reasons
        or result.notes
        or result.judge
        or result.failures
        or result.warnings
        or result.refused
    )
    return result.primary and (remarkable or not result.settled or replaces_answers(result))


def replaces_answers(result: CaseResult) -> bool:
    """True where answers become the accepted ones in place of others."""
    measured = result.measured
    return bool(result.accepted and result.answers and measured is not None and measured.answers)


# -- the small plots, as coordinates ---------------------------------------------------------------


@dataclass(frozen=True)
class IntervalPlot:
    """A difference with its bounds; x in pixels from the left, better to the right.

    zero: no difference.
    band: left edge and width of what is tolerated.
    point: the difference; None where it lies outside.
    line: the bounds, as far as they are inside; None without bounds.
    beyond_left, beyond_right: whether anything lies outside.
    """

    zero: float
    band: tuple[float, float]
    point: float | None
    line: tuple[float, float] | None
    beyond_left: bool
    beyond_right: bool


def course_points(result: CaseResult) -> list[tuple[float, float]]:
    """The curve as points: 0 at the plot's foot; at its head 1, or the largest distance."""
    width, height = COURSE
    head = 1.0 if result.higher_is_better else max(result.curve, default=1.0) or 1.0
    step = width / max(1, len(result.curve) - 1)
    return [
        (round(i * step, 1), round(height * (1 - min(1.0, max(0.0, value / head))), 1))
        for i, value in enumerate(result.curve)
    ]


def reach_of(results: Sequence[CaseResult]) -> float:
    """The scale that cases shown together share: tolerances from the middle of a plot to its edge.

    In tolerances, since cases of different metrics have no other unit in common. At most 8: one
    case that is far off shall not make all the others a point.
    """
    far = [abs(value) / _unit(result) for result in results for value in _values(result)]
    return min(_FARTHEST, max([_NEAREST, *far]))


def interval_plot(result: CaseResult, reach: float) -> IntervalPlot | None:
    """The difference of a case on the scale of `reach_of`; None where nothing was compared.

    A case that tolerates nothing has a scale of its own, up to its largest number.
    """
    if result.difference is None:
        return None
    unit, half = _unit(result), INTERVAL[0] / 2

    def x(value: float) -> float:
        inside = min(1.0, max(-1.0, value / unit / reach))
        return round(half * (1 + inside), 1)

    edge = reach * unit
    tolerated = x(-result.tolerance), x(result.tolerance)
    low = result.difference if result.low is None else result.low
    high = result.difference if result.high is None else result.high
    bounded = result.low is not None or result.high is not None
    return IntervalPlot(
        zero=half,
        band=(tolerated[0], round(tolerated[1] - tolerated[0], 1)),
        point=x(result.difference) if abs(result.difference) <= edge else None,
        line=(x(low), x(high)) if bounded else None,
        beyond_left=min(low, result.difference) < -edge,
        beyond_right=max(high, result.difference) > edge,
    )


def _values(result: CaseResult) -> list[float]:
    return [value for value in (result.low, result.difference, result.high) if value is not None]


def _unit(result: CaseResult) -> float:
    if result.tolerance > 0:
        return result.tolerance
    return max((abs(value) for value in _values(result)), default=0.0) or 1.0


_FUNCTIONS = (
    between, case_anchor, causes, comparisons, counts_line, course_points, failures_of, figures_of,
    hops_of, interval_plot, looks_of, moment, number, reach_of, replaces_answers, sample_anchor,
    settings_of, word_of, worst_samples,
)  # fmt: skip
"""Functions of the page's template, each under its own name."""
