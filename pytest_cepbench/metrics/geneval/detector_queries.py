"""What a detector is asked for a prompt, and which class its answers are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pytest_cepbench.artifacts import Detection, Detections
from pytest_cepbench.errors import unknown_name
from pytest_cepbench.metrics.geneval.requirements import Prompt

QueryStyle = Literal["class", "photo", "colored photo"]

QUERY_STYLES: tuple[QueryStyle, ...] = get_args(QueryStyle)
"""class: "bench", for detectors of a fixed set. photo: "a photo of a bench". colored photo: "a photo
of a red bench" where the clause has a color, as the Telephone Game's released code asks."""


@dataclass(frozen=True)
class DetectorQuery:
    """What a query stands for: a class and, where the query names one, a color."""

    name: str
    color: str | None = None


def queries(prompt: Prompt, style: QueryStyle) -> dict[str, DetectorQuery]:
    """The queries of a prompt, none twice, in the order of its clauses, excluded classes last.

    A class that is only excluded is asked for too; the Telephone Game's released code does not, so
    that such an exclusion always passes there (no published prompt has one). The article is always
    "a", as in the released code. Raises ValueError for an unknown style.
    """
    if style not in QUERY_STYLES:
        raise ValueError(unknown_name("query style", style, QUERY_STYLES))
    colored = style == "colored photo"
    wanted = [DetectorQuery(one.name, one.color if colored else None) for one in prompt.include]
    included = {one.name for one in prompt.include}
    wanted += [DetectorQuery(one.name) for one in prompt.exclude if one.name not in included]
    return {_words(one, style): one for one in wanted}


def objects_by_class(
    detections: Detections, asked: Mapping[str, DetectorQuery]
) -> dict[str, tuple[Detection, ...]]:
    """The detections of each class, in the order they came.

    asked: as `queries` gave it. Clauses of one class share its detections, whatever color each
    asked for. What answers a query that names a color has that color from then on.
    Raises ValueError for a detection that answers no query.
    """
    found: dict[str, list[Detection]] = {}
    for detection in detections.found:
        if detection.query not in asked:
            known = ", ".join(map(repr, asked))
            msg = f"a detection answers {detection.query!r}, which was not asked (asked: {known})"
            raise ValueError(msg)
        meant = asked[detection.query]
        told = replace(detection, color=meant.color) if meant.color else detection
        found.setdefault(meant.name, []).append(told)
    return {name: tuple(objects) for name, objects in found.items()}


def _words(asked: DetectorQuery, style: QueryStyle) -> str:
    if style == "class":
        return asked.name
    what = f"{asked.color} {asked.name}" if asked.color else asked.name
    return f"a photo of a {what}"
