"""The run as a JSON document, and as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import WriteError
from pytest_cepbench.escapes import escape_json, visible
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import (
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    settings_of,
)
from pytest_cepbench.report.formatting import between, number, word_of
from pytest_cepbench.report.plots import COURSE, INTERVAL, course_points, interval_plot, reach_of
from pytest_cepbench.report.result import CaseResult, UsageTotals
from pytest_cepbench.report.totals import (
    count_verdicts,
    counts_line,
    error_lines,
    improvement_line,
    run_alpha,
)
from pytest_cepbench.report.usage import effort_line, together

SCHEMA = 2
"""Of the JSON document; docs/report-schema.md says when it is raised."""

_THUMBNAIL = 192  # pixels of the longer side

_FUNCTIONS = (
    between, counts_line, course_points, failures_of, figures_of, hops_of, interval_plot, looks_of,
    number, reach_of, settings_of, word_of,
)  # fmt: skip
"""Functions of the page's template, each under its own name."""


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run beside its cases.

    verdict: of the whole run.
    lines: the model under test, and what it is compared with.
    problems: why it is incomplete.
    infrastructure: what went wrong with machines and was made good.
    beside: what its processes did outside of cases.
    deaths: of workers.
    """

    verdict: str
    version: str
    lines: Sequence[str]
    problems: Sequence[str]
    infrastructure: Sequence[str] = ()
    beside: Sequence[UsageTotals] = ()
    deaths: int = 0

    def efforts(self, results: Sequence[CaseResult]) -> list[UsageTotals]:
        """All that the run did."""
        return [*(result.effort for result in results), *self.beside]


def json_document(facts: RunFacts, results: Sequence[CaseResult]) -> str:
    """The run as JSON text; docs/report-schema.md describes every field."""
    document = {
        "schema": SCHEMA,
        "cepbench": facts.version,
        "verdict": facts.verdict,
        "counts": count_verdicts(results),
        "alpha": run_alpha(results),
        "setup": list(facts.lines),
        "problems": list(facts.problems),
        "infrastructure": list(facts.infrastructure),
        "deaths": facts.deaths,
        "effort": msgspec.to_builtins(together(facts.efforts(results))),
        "cases": [msgspec.to_builtins(result) for result in results],
    }
    # Python's own indentation takes several times as long. Lone surrogates are no UTF-8.
    text = json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    return escape_json(msgspec.json.format(text, indent=2).decode()) + "\n"


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


def write_reports(path: Path, documents: dict[str, str], *, stale: bool = True) -> list[Path]:
    """Write each text beside `path` under its suffix, each at once; returns the files.

    stale: whether earlier ones stay where one cannot be written, or are removed.
    Raises WriteError then.
    """
    targets = {path.with_suffix(suffix): text for suffix, text in documents.items()}
    fresh = {target: target.with_name(f".{target.name}.new") for target in targets}
    at = path.parent
    try:
        at.mkdir(parents=True, exist_ok=True)
        for at, text in targets.items():
            fresh[at].unlink(missing_ok=True)
            with fresh[at].open("x", encoding="utf-8", errors="replace") as stream:
                stream.write(text)
        for at in targets:
            fresh[at].replace(at)
    except OSError as error:
        left = _remove([*fresh.values(), *([] if stale else targets)])
        msg = f"{at} could not be written: {error.strerror or error}"
        if left:
            msg += f"; {left[0]} cannot be removed, and is of an earlier run"
        raise WriteError(msg) from error
    return list(targets)


def _remove(paths: Sequence[Path]) -> list[Path]:
    """Remove files; returns those that are still there."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return [path for path in paths if os.path.lexists(path)]


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
