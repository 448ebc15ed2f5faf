"""Formatting of every report: numbers, bounds, shares, and untrusted text (`printable`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_cepbench.escapes import one_line
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.compare import SAME_ANSWERS, SAME_MODEL
from pytest_cepbench.report.result import CaseResult

if TYPE_CHECKING:
    from pytest_cepbench.gate import Judgement
    from pytest_cepbench.report.history import HistoryCase

printable = one_line
"""Untrusted text on one line, nothing of it hidden."""


def number(value: float | None, *, signed: bool = False, decimals: int = 4) -> str:
    """Four decimals or as many as are asked for; a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:{'+' if signed else ''}.{decimals}f}"


def short(value: float, *, signed: bool = False) -> str:
    """A number in a sentence: three significant digits."""
    shown = f"{value:{'+' if signed else ''}#.3g}".removesuffix(".")
    return shown if "e" not in shown else f"{value:{'+' if signed else ''}.2g}"


def is_same(compared: Judgement | HistoryCase) -> bool:
    """Whether model or answers are the accepted ones: there was nothing to bound, or to test."""
    return compared.method in (SAME_MODEL, SAME_ANSWERS)


def bounds_of(compared: Judgement | HistoryCase) -> str:
    """One-sided bounds in brackets; why there are none; or a dash where they exclude nothing."""
    low, high = compared.low, compared.high
    if low is None and high is None:
        return compared.method if is_same(compared) else "-"
    least = "below any" if low is None else number(low, signed=True)
    most = "above any" if high is None else number(high, signed=True)
    return f"[{least}, {most}]"


def bounds_used(result: CaseResult, *, decimals: int = 4) -> str:
    """The bounds that a verdict rests on; `same model`; or a dash.

    A regression that its p tells from noise does not rest on them. A bound at the end of what the
    score can be excludes nothing and is left out: a rate of 0 cannot get better.
    """
    judgement = result.judgement
    if is_same(judgement):
        return judgement.method
    if result.verdict == Verdict.REGRESSED and judgement.p is not None:
        return "-"
    low, high, baseline = judgement.low, judgement.high, judgement.baseline_value
    if baseline is not None and 0 <= baseline <= 1:
        higher = result.higher_is_better
        low = None if low is None or (higher and low <= -baseline) else low
        high = None if high is None or high >= (1 - baseline if higher else baseline) else high
    shown = [number(end, signed=True, decimals=decimals) for end in (low, high)]
    if low is not None and high is not None:
        return f"[{', '.join(shown)}]"
    if low is None:
        return "-" if high is None else f"<= {shown[1]}"
    return f">= {shown[0]}"


def sight_of(result: CaseResult) -> str:
    """What an undecided case can tell with its samples, and how many would tell more; or nothing.

    The drop that more samples would see is the tolerated one, or the observed one where that is
    larger.
    """
    clauses, judgement = [], result.judgement
    if judgement.visible is not None:
        clauses.append(f"{counted(result.n, 'sample')} see drops from {short(judgement.visible)}")
    elif judgement.needed is not None:
        clauses.append(f"{counted(result.n, 'sample')} are too few")
    if judgement.needed is not None:
        size = max(result.tolerance, -(judgement.difference or 0.0))
        clauses.append(f"{judgement.needed:,} would see {size:.3g}")
    return "; ".join(clauses)


def p_value(p: float | None) -> str:
    """A p value with two digits; a dash where no test was made."""
    if p is None:
        return "-"
    return "< 1e-5" if p < 1e-5 else f"{p:.2g}".replace("e-0", "e-")


def change_of(compared: Judgement | HistoryCase, bounds: str = "") -> str:
    """The difference, its bounds and the p of its test, as far as they are known.

    bounds: in the place of those that `bounds_of` gives, such as those that a verdict rests on.
    """
    bounds = bounds or bounds_of(compared)
    change = number(compared.difference, signed=True) + (f" {bounds}" if bounds != "-" else "")
    return change if compared.p is None else f"{change}, p {p_value(compared.p)}"


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


def name_of(result: CaseResult) -> str:
    """A case as it is called in one line: suite, part and metric."""
    return f"{result.suite} {printable(result.part, 40)} {printable(result.label, 40)}"


def word_of(result: CaseResult) -> str:
    """The verdict of a case in one word; in lower case where the case cannot fail a run."""
    return result.word if result.primary else result.word.lower()
