"""Formatting of every report: numbers, bounds, shares, and untrusted text (`printable`)."""

from __future__ import annotations

from pytest_cepbench.escapes import one_line as printable
from pytest_cepbench.report.result import CaseResult

__all__ = [
    "between",
    "counted",
    "duration",
    "name_of",
    "number",
    "percent",
    "printable",
    "rate",
    "word_of",
]


def number(value: float | None, *, signed: bool = False, decimals: int = 4) -> str:
    """Four decimals or as many as are asked for; a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:{'+' if signed else ''}.{decimals}f}"


def between(low: float | None, high: float | None, *, decimals: int = 4) -> str:
    """A pair of bounds in brackets, or a dash where neither is known."""
    if low is None and high is None:
        return "-"
    ends = (number(end, signed=True, decimals=decimals) for end in (low, high))
    return f"[{', '.join(ends)}]"


def percent(share: float) -> str:
    """A share of 1 in percent, three digits."""
    return f"{100 * share:.3g} %"


def counted(count: int, thing: str) -> str:
    """Number and noun: 1 case, 2 cases."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def duration(seconds: float) -> str:
    """A time in the two largest units that it has: 40 s, 3 min 20 s, 5 h 2 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def rate(steps: float) -> str:
    """A pace in words. steps: per second, above 0."""
    return f"{steps:.1f} steps/s" if steps >= 1 else f"{1 / steps:.1f} s/step"


def name_of(result: CaseResult) -> str:
    """A case as it is called in one line: suite, part and metric."""
    return f"{result.suite} {printable(result.part, 40)} {printable(result.label, 40)}"


def word_of(result: CaseResult) -> str:
    """The verdict of a case in one word; in lower case where the case cannot fail a run."""
    return result.word if result.primary else result.word.lower()
