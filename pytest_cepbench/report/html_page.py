"""The run as an HTML page, which needs nothing beside itself or has its files in a folder."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from pytest_cepbench.escapes import visible
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import (
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    settings_of,
)
from pytest_cepbench.report.chain_pairs import (
    case_anchor,
    drawn_samples,
    observed_losses,
    paired_steps,
    placed_chains,
    sample_anchor,
    sample_values,
)
from pytest_cepbench.report.fact_table import (
    PAIR_HEADS,
    fact_lines,
    kind_heads,
    kind_rows,
    loses_most,
    mostly_invented,
    pair_rows,
    shade_of,
    share_of,
    step_heads,
    step_rows,
)
from pytest_cepbench.report.headline import in_tolerances, worst_case, worst_samples
from pytest_cepbench.report.number_format import (
    bounds_of,
    counted,
    is_same,
    number,
    p_value,
    word_of,
)
from pytest_cepbench.report.page_images import FileSource, ImageSource, PageImages
from pytest_cepbench.report.plots import (
    CURVES,
    INTERVAL,
    STRIP,
    curve_plots,
    heat_map,
    interval_plot,
    reach_of,
    strip_plot,
)
from pytest_cepbench.report.provenance import comparisons, moment
from pytest_cepbench.report.result import CaseResult, chains_shown
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    error_lines,
    improvement_lines,
    judge_lines,
    verdict_lines,
)
from pytest_cepbench.report.writers import RunFacts

_UNJUDGED = (Verdict.ERROR, Verdict.INCOMPLETE, Verdict.INCOMPARABLE, Verdict.NO_BASELINE)

_NUMBERS = re.compile(r"\d+")


@dataclass
class Cause:
    """Cases that have one reason not to be judged, or failures of the same kind.

    text: the reason, as the first of them gives it.
    """

    text: str
    results: list[CaseResult] = field(default_factory=list)

    @property
    def count(self) -> str:
        """How many cases there are, in words."""
        return counted(len(self.results), "case")


def pictured_cases(results: Sequence[CaseResult]) -> frozenset[str]:
    """Names of the cases whose chains are shown, as `case_anchor` has them.

    All that are not settled, and of each suite the one that lost most of those that hold.
    """
    names = {case_anchor(result) for result in results if not result.settled}
    held: dict[str, list[CaseResult]] = {}
    for result in results:
        if result.settled and result.primary and _has_pictures(result):
            held.setdefault(result.suite, []).append(result)
    names |= {case_anchor(max(cases, key=_most_lost)) for cases in held.values()}
    return frozenset(names)


def causes(results: Sequence[CaseResult]) -> list[Cause]:
    """Why cases were not judged, or have failed samples, the most frequent reason first.

    Reasons that differ in numbers alone are one.
    """
    by_text: dict[str, Cause] = {}
    for result in results:
        for text in _reasons(result):
            key = _NUMBERS.sub("#", text)
            by_text.setdefault(key, Cause(text)).results.append(result)
    return sorted(by_text.values(), key=lambda cause: -len(cause.results))


def _drop(result: CaseResult) -> float:
    if result.difference is None:
        return -1.0
    return max(0.0, -in_tolerances(result.difference, result.tolerance))


def _has_pictures(result: CaseResult) -> bool:
    chains, answers = chains_shown(result), result.answers
    return any(chain.links for chain in chains) or any(answer.question for answer in answers)


def _most_lost(result: CaseResult) -> tuple[bool, float]:
    """Of cases that hold: those of which a sample lost come first, then by the mean drop."""
    return bool(result.chains), _drop(result)


def _reasons(result: CaseResult) -> Iterator[str]:
    if result.refused:
        yield result.refused
    elif result.verdict in _UNJUDGED and result.reasons and not result.accepted:
        yield "; ".join(result.reasons)
    elif not result.settled:
        yield from (f"failed samples: {kind}" for kind in result.failures)


STYLESHEET, SCRIPT = "page.css", "page.js"
"""Files of the page's look and behavior; everything is readable without the script."""

_PARTS = {
    STYLESHEET: ("page.css", "plots.css", "paired_chains.css", "facts.css"),
    SCRIPT: ("page.js", "paired_chains.js", "paired_differences.js"),
}
"""File of the page -> files of this package that it consists of."""

COURSE = (120, 32)
"""Width and height of the course of a case in pixels."""


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
    pictured = pictured_cases(results)

    def noteworthy(result: CaseResult) -> bool:
        return _noteworthy(result, pictured)

    environment.tests |= {"noteworthy": noteworthy}
    environment.globals |= {"pair_heads": PAIR_HEADS}
    environment.globals |= {"interval_size": INTERVAL, "curves_size": CURVES, "strip_size": STRIP}
    environment.globals |= {function.__name__: function for function in _FUNCTIONS}
    page_images, files = PageImages(image, folder, file), page_files()
    return environment.get_template("page.html.jinja").render(
        facts=facts,
        results=results,
        summary=[
            *verdict_lines(results),
            *error_lines(results),
            effort_line(facts.efforts(results)),
            *judge_lines(results),
            *fact_lines(results),
            *improvement_lines(results),
        ],
        images=page_images,
        picture=page_images.get,
        pictured=pictured,
        opened=worst_case(results) or next(filter(replaces_answers, results), None),
        stylesheet=files[STYLESHEET],
        script=files[SCRIPT],
        script_digest=base64.b64encode(sha256(files[SCRIPT].encode()).digest()).decode(),
        course_size=COURSE,
    )


def page_files() -> dict[str, str]:
    """Name -> text of the files that a page with a folder needs beside itself."""
    folder = resources.files(__package__)
    return {
        name: "\n".join(folder.joinpath(part).read_text(encoding="utf-8") for part in parts)
        for name, parts in _PARTS.items()
    }


def _template_source(name: str) -> str | None:
    template = resources.files(__package__).joinpath(name)
    return template.read_text(encoding="utf-8") if template.is_file() else None


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it; what macros made is of such texts already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value


def _noteworthy(result: CaseResult, pictured: Collection[str]) -> bool:
    """True where the details of a case are shown by themselves, not folded away with others.

    pictured: the cases whose chains are shown; see `pictured_cases`.
    """
    remarkable = bool(
        result.reasons
        or result.notes
        or result.judge
        or result.failures
        or result.warnings
        or result.refused
    )
    remarkable = remarkable or not result.settled or replaces_answers(result)
    return result.primary and (remarkable or case_anchor(result) in pictured)


def replaces_answers(result: CaseResult) -> bool:
    """True where answers become the accepted ones in place of others."""
    measured = result.measured
    return bool(result.accepted and result.answers and measured is not None and measured.answers)


# -- the small plots, as coordinates ---------------------------------------------------------------


def course_points(result: CaseResult) -> list[tuple[float, float]]:
    """The curve as points: 0 at the plot's foot; at its head 1, or the largest distance."""
    width, height = COURSE
    head = 1.0 if result.higher_is_better else max(result.curve, default=1.0) or 1.0
    step = width / max(1, len(result.curve) - 1)
    return [
        (round(i * step, 1), round(height * (1 - min(1.0, max(0.0, value / head))), 1))
        for i, value in enumerate(result.curve)
    ]


_FUNCTIONS = (
    bounds_of, case_anchor, causes, comparisons, counts_line, course_points, curve_plots,
    drawn_samples, failures_of, figures_of, heat_map, hops_of, interval_plot, is_same,
    kind_heads, kind_rows, looks_of, loses_most, moment, mostly_invented, number, observed_losses,
    p_value, pair_rows, paired_steps, placed_chains, reach_of, replaces_answers, sample_anchor,
    sample_values, settings_of, shade_of, share_of, step_heads, step_rows, strip_plot, word_of,
    worst_samples,
)  # fmt: skip
"""Functions of the page's template, each under its own name."""
