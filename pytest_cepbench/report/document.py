"""The run as a JSON document, and as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2
import msgspec
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text import effort_line, number

SCHEMA = 1

_THUMBNAIL = 192  # pixels of the longer side

_PLOT = (120, 32)


@dataclass(frozen=True)
class RunFacts:
    """What is said of a run beside its cases.

    verdict: of the whole run. lines: who was gated against what. problems: why it is incomplete.
    """

    verdict: str
    version: str
    lines: Sequence[str]
    problems: Sequence[str]


def json_document(facts: RunFacts, results: Sequence[CaseResult]) -> str:
    """The run as JSON text; `schema` is raised when a field changes meaning."""
    document = {
        "schema": SCHEMA,
        "cepbench": facts.version,
        "verdict": facts.verdict,
        "setup": list(facts.lines),
        "problems": list(facts.problems),
        "cases": [msgspec.to_builtins(result) for result in results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def html_page(
    facts: RunFacts,
    results: Sequence[CaseResult],
    image: Callable[[str], ImageArtifact | None],
) -> str:
    """The run as HTML. Everything that models, files or users named is escaped.

    image: gives a stored image by digest, or None when it is gone.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    template = environment.from_string(
        resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    )

    @cache  # a category's worst samples are its group's and often the whole suite's too
    def picture(digest: str) -> str | None:
        found = image(digest)
        return None if found is None else _data_uri(found)

    return template.render(
        facts=facts,
        results=results,
        effort=effort_line(results),
        picture=picture,
        plot=_plot_points,
        plot_size=_PLOT,
        passed=sum(result.passes for result in results),
    )


def write_reports(path: Path, documents: dict[str, str]) -> list[Path]:
    """Write each text beside `path` under its suffix, each at once; returns the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, text in documents.items():
        target = path.with_suffix(suffix)
        fresh = target.with_name(f".{target.name}.new")
        fresh.write_text(text, encoding="utf-8", errors="replace")
        fresh.replace(target)
        written.append(target)
    return written


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


def _plot_points(result: CaseResult) -> list[tuple[float, float]]:
    """The curve as points of a small plot: 0 at its foot; at its head 1, or the largest distance."""
    width, height = _PLOT
    head = 1.0 if result.higher_is_better else max(result.curve, default=1.0) or 1.0
    step = width / max(1, len(result.curve) - 1)
    return [
        (round(i * step, 1), round(height * (1 - min(1.0, max(0.0, value / head))), 1))
        for i, value in enumerate(result.curve)
    ]
