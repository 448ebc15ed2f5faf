"""The run as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.escapes import visible
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import (
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    settings_of,
)
from pytest_cepbench.report.number_format import between, number, word_of
from pytest_cepbench.report.plots import COURSE, INTERVAL, course_points, interval_plot, reach_of
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    error_lines,
    improvement_line,
)
from pytest_cepbench.report.writers import RunFacts

_THUMBNAIL = 192  # pixels of the longer side

_FUNCTIONS = (
    between, counts_line, course_points, failures_of, figures_of, hops_of, interval_plot, looks_of,
    number, reach_of, settings_of, word_of,
)  # fmt: skip
"""Functions of the page's template, each under its own name."""


def html_page(
    facts: RunFacts,
    results: Sequence[CaseResult],
    image: Callable[[str], ImageArtifact | None],
) -> str:
    """The run as HTML. Everything that models, files or users named is escaped, and `visible`.

    image: gives a stored image by digest, or None when it is gone.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
    )
    environment.tests |= {"calm": _calm, "noteworthy": _noteworthy}
    environment.globals |= {function.__name__: function for function in _FUNCTIONS}
    template = environment.from_string(
        resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    )

    @cache  # a category's worst samples are its group's and often the whole suite's too
    def picture(digest: str) -> str | None:
        artifact = image(digest)
        return None if artifact is None else _data_uri(artifact)

    return template.render(
        facts=facts,
        results=results,
        said=_summary_lines(facts, results),
        picture=picture,
        course_size=COURSE,
        interval_size=INTERVAL,
    )


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it; what macros made is of such texts already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value


def _calm(result: CaseResult) -> bool:
    """True where nothing happened: chains of such cases are not shown, there can be thousands."""
    return result.accepted or result.verdict == Verdict.HELD


def _noteworthy(result: CaseResult) -> bool:
    """True where the details of a case are shown by themselves, not folded away with others."""
    remarkable = bool(
        result.reasons or result.notes or result.failures or result.warnings or result.refused
    )
    return result.primary and (remarkable or not _calm(result))


def _summary_lines(facts: RunFacts, results: Sequence[CaseResult]) -> list[str]:
    """Lines below the verdict of the run."""
    passed = sum(result.passes for result in results)
    lines = [
        f"{passed} of {len(results)} cases pass: {counts_line(results)}",
        *error_lines(results),
        effort_line(facts.efforts(results)),
    ]
    better = improvement_line(results)
    return lines if better is None else [*lines, better]


def _data_uri(image: ImageArtifact) -> str:
    picture = image.to_pil()
    picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
    factor = _THUMBNAIL // max(picture.size)
    if factor > 1:  # a small image is shown pixel by pixel, not blurred by the browser
        size = (picture.width * factor, picture.height * factor)
        picture = picture.resize(size, Image.Resampling.NEAREST)
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
