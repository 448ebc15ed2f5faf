"""JSON as tests read it: files of lines, and reports with each case as one record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

JUDGED = {
    "level": "alpha",
    "baseline": "baseline_value",
    "anchor": "since_anchor",
    **{
        name: name
        for name in (
            *("verdict", "reasons", "difference", "p", "low", "high", "method", "units"),
            *("visible", "needed", "baseline_floor", "reference"),
        )
    },
}
"""Fields of a flat case that its judgement holds, by their names there."""


def flat_case(case: dict[str, Any]) -> dict[str, Any]:
    """A case of a report, with what it nests beside what is its own."""
    nested = ("measurement", "judgement", "shown")
    measured, judged, shown = (case[name] for name in nested)
    value = None if measured is None else measured["value"]
    own = {name: field for name, field in case.items() if name not in nested}
    return {
        **own,
        **shown,
        **{flat: judged[name] for flat, name in JUDGED.items()},
        "notes": [*shown["notes"], *judged["statements"]],
        "warnings": [*shown["warnings"], *judged["warnings"]],
        "value": value,
        "n": 0 if measured is None else measured["n"],
        "failures": {} if measured is None else measured["failures"],
        "model": {} if measured is None else measured["model"],
        "identity": {} if measured is None else measured["identity"],
        "floor": None if measured is None else measured["floor"],
        "higher_is_better": measured is None or measured["higher_is_better"],
        "measured": measured,
    }


def flat_report(document: dict[str, Any]) -> dict[str, Any]:
    """A report with flat cases; an empty one stays."""
    cases = [flat_case(case) for case in document.get("cases", ())]
    return {**document, "cases": cases} if document else document


def json_lines(path: Path) -> list[Any]:
    """The values of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
