"""Baseline files: small TOML texts that people review as a diff.

Written line by line so that the same measurement always gives the same bytes, one score a line; read
back strictly, since a baseline that was edited into nonsense must not let a checkpoint pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate.measurement import DECIMALS, CaseKey, Measurement

FORMAT = 1

REMEDY = "restore it from version control, or accept a new one with --snapshot-update"
"""What to do with a baseline that cannot be used."""

_HEAD = """\
# Accepted baseline of one case, written by `pytest --snapshot-update`. Review it as a diff.
"""

_SLACK = 2 * 10.0**-DECIMALS  # the value was rounded once, the mean of rounded scores once more


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An accepted measurement, as it is kept in a file.

    Fields as in `Measurement`; case is its key as text, value and n are redundant and checked.
    """

    format: int
    case: str
    metric: str
    value: float
    n: int
    higher_is_better: bool
    model: dict[str, str]
    identity: dict[str, str]
    scores: dict[str, dict[str, float]]
    failures: dict[str, int] = {}
    sizes: dict[str, int] = {}


def dump_baseline(measurement: Measurement) -> str:
    """The text of a baseline file; the same measurement always gives the same text."""
    lines = [
        _HEAD.rstrip("\n"),
        f"format = {FORMAT}",
        f"case = {_quote(str(measurement.key))}",
        f"metric = {_quote(measurement.label)}",
        f"value = {_number(measurement.value)}",
        f"n = {measurement.n}",
        f"higher_is_better = {json.dumps(measurement.higher_is_better)}",
    ]
    tables: list[tuple[str, Mapping[str, Any]]] = [
        ("model", measurement.model),
        ("identity", measurement.identity),
        ("failures", dict(sorted(measurement.failures.items()))),
    ]
    if measurement.sizes:
        tables.append(("sizes", dict(sorted(measurement.sizes.items()))))
    for category in sorted(measurement.scores):
        part = measurement.scores[category]
        tables.append((f"scores.{_quote(category)}", dict(sorted(part.items()))))
    for name, table in tables:
        lines += ["", f"[{name}]"]
        for field, value in table.items():
            shown = _number(value) if isinstance(value, float) else _quote_or_int(value)
            lines.append(f"{_quote(field)} = {shown}")
    return "\n".join(lines) + "\n"


def load_baseline(text: str, key: CaseKey, where: str) -> Baseline:
    """The baseline in a file's text.

    where: names the file in errors. Raises BaselineError when it is not TOML, lacks or has fields
    it should not, belongs to another case, is of another format, or contradicts itself.
    """
    try:
        baseline = msgspec.toml.decode(text, type=Baseline)
    except msgspec.MsgspecError as error:  # includes what is not TOML at all
        msg = f"baseline {where} cannot be read: {error}; {REMEDY}"
        raise BaselineError(msg) from error
    problem = _contradiction(baseline, key)
    if problem:
        msg = f"baseline {where} {problem}; {REMEDY}"
        raise BaselineError(msg)
    return baseline


def _contradiction(baseline: Baseline, key: CaseKey) -> str | None:
    if baseline.format != FORMAT:
        return f"has format {baseline.format}, this version reads {FORMAT}"
    if baseline.case != str(key):
        return f"is of case {baseline.case!r}, not of {str(key)!r}"
    try:
        measurement = Measurement(
            key=key,
            label=baseline.metric,
            higher_is_better=baseline.higher_is_better,
            scores=baseline.scores,
            identity=baseline.identity,
            model=baseline.model,
            sizes=baseline.sizes,
        )
        value = measurement.value
    except (ValueError, OverflowError):
        return "holds no scores, or scores that are not finite"
    if baseline.n != measurement.n:
        return f"says n = {baseline.n} and holds the scores of {measurement.n}"
    if not abs(baseline.value - value) <= _SLACK:
        return f"says value = {baseline.value} and its scores give {value}"
    return None


def _number(value: float) -> str:
    return repr(round(value, DECIMALS) + 0.0)  # + 0.0 turns -0.0 into 0.0


def _quote_or_int(value: str | int) -> str:
    return str(value) if isinstance(value, int) else _quote(value)


def _quote(text: str) -> str:
    """A TOML basic string; JSON's escapes are a subset of TOML's, which also escapes DEL.

    Lone surrogates (a path on the command line that is not UTF-8) are shown as their escapes: no
    TOML file can hold them.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
