"""Plain text: the failure message of a case and the summary of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from pytest_cepbench.escapes import width_of
from pytest_cepbench.report.case_table import (
    HEADS,
    SHORTAGE_HEADS,
    answer_lines,
    cells_of,
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    range_shown,
    settings_of,
    shortage_advice,
    shortage_cells,
)
from pytest_cepbench.report.headline import undecided
from pytest_cepbench.report.number_format import between, name_of, number, printable
from pytest_cepbench.report.result import AnswerShown, CaseResult, ChainShown
from pytest_cepbench.report.totals import error_lines, improvement_lines, judge_lines, verdict_lines

__all__ = [
    "explain",
    "number",
    "one_line",
    "printable",
    "promise_lines",
    "refusal_lines",
    "shortage_lines",
    "summary_table",
    "verbose_lines",
    "warning_lines",
]

_WIDTH = 100  # of sentences that are wrapped

_LONGEST_TEXT = 76  # of an answer's line, which is not wrapped


# -- one case --------------------------------------------------------------------------------------


def explain(result: CaseResult) -> str:
    """Message of a failed test: why the case does not pass, and what to do next.

    In the manner of pytest-regressions: what was expected, what was obtained, how far they are
    apart; then the samples that differ most.
    """
    blocks = (
        _numbers(result),
        _worst_samples(result),
        _coverage(result),
        _attribution(result),
        [f"  next: {result.presentation.next_step}"],
    )
    case = f"{result.suite}, {printable(result.part)}, {printable(result.label)}"
    word = result.word.lower() if result.primary else f"{result.verdict} (informational)"
    lines = [f"{word}: {case} ({result.presentation.meaning})"]
    for block in blocks:
        shown = list(block)
        lines += ["", *shown] if shown else []
    return "\n".join(lines)


def _numbers(result: CaseResult) -> Iterator[str]:
    """The figures, how the value came about, and why it does not pass."""
    for figure in figures_of(result):
        remark = f"   {figure.remark}" if figure.remark else ""
        yield f"  {figure.label:12} {figure.shown:>10}{remark}"
    if result.curve:
        yield f"  {'course':12} " + "  ".join(map(number, result.curve))
    judge = [f"judge: {result.judge}"] if result.judge else []
    for note in (*result.notes, *judge, *result.warnings):
        yield f"  {printable(note, 500)}"
    for reason in (*result.reasons, *filter(None, [result.refused])):
        for line in reason.splitlines():
            yield f"  {printable(line, 500)}"


def _worst_samples(result: CaseResult) -> Iterator[str]:
    """The samples that lost most; of answers also what was asked, answered and judged."""
    samples: list[ChainShown | AnswerShown] = [*result.chains, *result.answers]
    if not samples:
        return
    yield f"  {'samples that lost most':40} {'baseline':>10} {'now':>10} {'change':>10}"
    for sample in samples:
        change = None if sample.baseline is None else sample.score - sample.baseline
        remark = sample.failure or sample.remark
        note = f"  {printable(remark, 60)}" if remark else ""
        yield (
            f"  {printable(sample.sample, 40):40} {number(sample.baseline):>10} "
            f"{number(sample.score):>10} {number(change, signed=True):>10}{note}"
        )
        if isinstance(sample, AnswerShown):
            for name, text in answer_lines(sample, _LONGEST_TEXT):
                yield f"    {name:17} {text}"


def _coverage(result: CaseResult) -> Iterator[str]:
    """The failures, and the samples that were looked at."""
    if result.failures:
        yield f"  failed: {failures_of(result)}"
    if looks_of(result):
        yield f"  {looks_of(result)}"


def _attribution(result: CaseResult) -> Iterator[str]:
    """Attribution of the drop, in words and hop by hop."""
    sentences = printable(result.attribution, 2000)
    yield from textwrap.wrap(sentences, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    hops = list(hops_of(result))
    if hops:
        width = max(len(hop.label) for hop in hops)
        head = "hop" if result.hops[0].generation else "part"
        yield f"  {head:{width}} {'cost':>10} {'share':>8}"
        for hop in hops:
            yield f"  {hop.label:{width}} {hop.shown:>10} {hop.remark:>8}"


def one_line(result: CaseResult) -> str:
    """A case and its verdict in one sentence, as warnings show it."""
    if result.refused:
        return f"{name_of(result)} refused: {printable(result.refused, 500)}"
    named = f"{name_of(result)} {result.verdict}"
    if result.difference is None:
        reason = result.reasons[0] if result.reasons else result.presentation.meaning
        return f"{named}: {printable(reason)}"
    bounds = between(result.low, result.high)
    within = f" in {bounds}" if bounds != "-" else ""
    return (
        f"{named}: difference {number(result.difference, signed=True)}{within}, "
        f"tolerance {number(result.tolerance)}, n = {result.n}"
    )


# -- a run -----------------------------------------------------------------------------------------


_DROPPED = ("tolerance", "n", "baseline", "now", "bounds", "change")
"""Columns in the order in which a terminal that is too narrow goes without them."""


def summary_table(
    results: Sequence[CaseResult], columns: int | None = None
) -> list[tuple[str, str]]:
    """(line, color) for every case, below a header whose color is "bold".

    columns: that a line may take; None where it does not matter. Where the table is wider, numbers
    are left out in the order of `_DROPPED`, and then names are cut in their middle.
    Verdicts of cases that cannot fail the run are in lower case. Columns are as wide as what is in
    them, so that cases with usual names fit into 120.
    """
    lines = _aligned([cells_of(result) for result in results], HEADS, columns, _DROPPED)
    colors = ["green" if result.accepted else result.presentation.color for result in results]
    return list(zip(lines, ["bold", *colors], strict=True))


def shortage_lines(results: Sequence[CaseResult], columns: int | None = None) -> list[str]:
    """A table of the undecided cases: samples now and needed, drop that is visible and tolerance.

    columns: as in `summary_table`. Empty where no gating case is undecided.
    """
    cases = undecided(results)
    if not cases:
        return []
    rows = [shortage_cells(result) for result in cases]
    return _aligned(rows, SHORTAGE_HEADS, columns, ("tolerance", "visible drop"))


def _aligned(
    rows: Sequence[Sequence[str]],
    heads: Sequence[str],
    columns: int | None,
    dropped: Sequence[str],
) -> list[str]:
    """Rows as lines below a header: words to the left, numbers to the right.

    columns: that a line may take; None where it does not matter.
    dropped: heads, in the order in which columns are left out to get there; those without a number
    go first.
    """
    table = [dict(zip(heads, cells, strict=True)) for cells in (heads, *rows)]
    widths = {head: max(width_of(row[head]) for row in table) for head in heads}
    if columns is not None:
        known = {head: any(row[head] != "-" for row in table[1:]) for head in heads}
        for head in sorted(dropped, key=known.__getitem__):
            if _excess(widths, columns) > 0:
                del widths[head]
        cut = max(0, _excess(widths, columns))
        widths["case"] = max(len("case"), widths["case"] - cut)
    return [
        " ".join(
            _padded(row[head], width, right=head not in ("verdict", "case"))
            for head, width in widths.items()
        ).rstrip()
        for row in table
    ]


def _excess(widths: Mapping[str, int], columns: int) -> int:
    """By how much a table is too wide, with a space between its columns."""
    return sum(widths.values()) + len(widths) - 1 - columns


def _padded(text: str, width: int, *, right: bool) -> str:
    """A cell of this width; dots stand for the middle of what is wider."""
    if width_of(text) > width:
        start = end = ""
        for first, last in zip(text, reversed(text), strict=True):
            if width_of(start + first + last + end) + 2 > width:
                break
            start, end = start + first, last + end
        text = f"{start}..{end}"
    space = " " * max(0, width - width_of(text))
    return space + text if right else text + space


def promise_lines(results: Sequence[CaseResult]) -> list[str]:
    """Below the table: the counts, the errors promised, the judges, and what could be done."""
    cases = undecided(results)
    return [
        *verdict_lines(results),
        *error_lines(results),
        *judge_lines(results),
        *([shortage_advice(cases)] if cases else []),
        *improvement_lines(results),
    ]


_NAMED = 3  # of undecided cases, in a warning


def shortage_warning(results: Sequence[CaseResult]) -> str:
    """The undecided cases in one sentence, for pytest's warnings; the first few by name."""
    cases = undecided(results)
    shown = "; ".join(one_line(result) for result in cases[:_NAMED])
    more = f"; and {len(cases) - _NAMED} more" if len(cases) > _NAMED else ""
    return f"{shortage_advice(cases)}. {shown}{more}"


def warning_lines(results: Sequence[CaseResult]) -> list[str]:
    """Warnings of all cases: each sentence once, with its cases."""
    cases: dict[str, list[str]] = {}
    for result in results:
        for warning in result.warnings:
            cases.setdefault(warning, []).append(name_of(result))
    lines = []
    for warning, (first, *others) in cases.items():
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{first}{more}: {printable(warning, 500)}")
    return lines


def refusal_lines(results: Sequence[CaseResult]) -> list[str]:
    """Every measurement that may not become a baseline, and what to do about it."""
    refused = [result for result in results if result.refused]
    lines = [f"{name_of(result)}: {printable(result.refused, 500)}" for result in refused]
    return [*lines, refused[0].presentation.next_step] if refused else []


def verbose_lines(results: Sequence[CaseResult]) -> list[str]:
    """Line for every case with its settings, and where each came from."""
    if not results:
        return []
    lines = ["judged by (alpha: the share of the case):"]
    for result in results:
        settings = [
            f"{setting.label} {setting.shown} ({setting.remark})" for setting in settings_of(result)
        ]
        span = range_shown(result)
        settings += [] if span is None else [str(span)]
        settings += [] if result.primary else ["informational"]
        lines.append(f"  {name_of(result)}: {', '.join(settings)}")
    return lines
