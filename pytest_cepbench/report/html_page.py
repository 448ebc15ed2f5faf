"""The run as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources

import jinja2
from markupsafe import Markup
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.escapes import visible
from pytest_cepbench.report.anchors import case_anchor, sample_anchor
from pytest_cepbench.report.case_table import (
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    settings_of,
)
from pytest_cepbench.report.chain_pairs import has_pairs, observed_losses, paired_steps
from pytest_cepbench.report.number_format import between, number, word_of
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
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    error_lines,
    improvement_lines,
    judge_lines,
    verdict_lines,
)
from pytest_cepbench.report.writers import RunFacts

_THUMBNAIL = 192  # pixels of the longer side

COURSE = (120, 32)
"""Width and height of the course of a case in pixels."""


def html_page(
    facts: RunFacts,
    results: Sequence[CaseResult],
    image: Callable[[str], ImageArtifact | None],
) -> str:
    """The run as HTML. Everything that models, files or users named is escaped, and `visible`.

    image: gives a stored image by digest, or None when it is gone.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_cepbench.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
    )
    environment.tests |= {"noteworthy": _noteworthy}
    environment.globals |= {"interval_size": INTERVAL, "curves_size": CURVES, "strip_size": STRIP}
    environment.globals |= {function.__name__: function for function in _FUNCTIONS}
    template = environment.get_template("page.html.jinja")

    @cache  # a category's worst samples are its group's and often the whole suite's too
    def picture(digest: str) -> str | None:
        artifact = image(digest)
        return None if artifact is None else _data_uri(artifact)

    return template.render(
        facts=facts,
        results=results,
        summary=[
            *verdict_lines(results),
            *error_lines(results),
            effort_line(facts.efforts(results)),
            *judge_lines(results),
            *improvement_lines(results),
        ],
        picture=picture,
        course_size=COURSE,
        script=Script.read("paired_chains.js") if any(map(has_pairs, results)) else None,
    )


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


@dataclass(frozen=True)
class Script:
    """A script of the page.

    text: as it stands in the page, to the last character.
    source: its digest for the page's content policy, under which no other script runs.
    """

    text: Markup
    source: str

    @classmethod
    def read(cls, name: str) -> Script:
        """The script in a file of this package."""
        text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
        digest = base64.b64encode(sha256(text.encode()).digest()).decode()
        return cls(Markup(text), f"sha256-{digest}")  # noqa: S704 # our own file


_FUNCTIONS = (
    between, case_anchor, counts_line, course_points, curve_plots, failures_of, figures_of,
    heat_map, hops_of, interval_plot, looks_of, number, observed_losses, paired_steps, reach_of,
    replaces_answers, sample_anchor, settings_of, strip_plot, word_of,
)  # fmt: skip
"""Functions of the page's template, each under its own name."""
