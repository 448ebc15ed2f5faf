"""Plain text: the failure message of a case, and the sentences of a run's summary."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from pytest_cepbench.escapes import width_of
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import (
    answer_lines,
    fact_lines,
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    shortage_advice,
)
from pytest_cepbench.report.headline import (
    WorstSample,
    undecided,
    without_pooled,
    worst_case,
    worst_first,
)
from pytest_cepbench.report.number_format import (
    bounds_used,
    change_of,
    counted,
    name_of,
    number,
    percent,
    printable,
    short,
    sight_of,
)
from pytest_cepbench.report.result import AnswerShown, CaseResult, ChainShown
from pytest_cepbench.report.tables import wrap
from pytest_cepbench.report.totals import (
    counts_line,
    error_lines,
    improvement_lines,
    judge_lines,
    verdict_lines,
)

_WIDTH = 80  # of a failure message: the narrowest usual terminal, and what pytest takes a log for
_REMARK = 28  # columns before the remark of a figure
_LONGEST_TEXT = 76  # of a part of an answer


# -- one case --------------------------------------------------------------------------------------


def explain(result: CaseResult) -> str:
    """Message of a failed test: why the case does not pass, and what to do next.

    In the manner of pytest-regressions: what was expected, what was obtained, how far they are
    apart; then the samples that differ most. Within 80 columns but for reasons and notes, which
    name what people search for.
    """
    coverage = [f"  failed: {failures_of(result)}"] if result.failures else []
    coverage += [f"  {looks_of(result)}"] if looks_of(result) else []
    sentences = printable(result.shown.attribution, 2000)
    lost = textwrap.wrap(sentences, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    if hops := list(hops_of(result)):
        width = max(len(hop.label) for hop in hops)
        lost.append(f"  {'hop':{width}} {'cost':>10} {'share':>8}")
        lost += [f"  {hop.label:{width}} {hop.shown:>10} {hop.remark:>8}" for hop in hops]
    blocks = (
        _numbers(result),
        _worst_samples(result),
        coverage,
        lost,
        wrap(f"  next: {result.presentation.next_step}", _WIDTH, indent=" " * 6),
    )
    case = f"{result.suite}, {printable(result.part)}, {printable(result.label)}"
    word = result.word.lower() if result.primary else f"{result.verdict} (informational)"
    meaning = printable(result.presentation.meaning, 500)
    lines = wrap(f"{word}: {case} ({meaning})", _WIDTH)
    for block in blocks:
        shown = list(block)
        lines += ["", *shown] if shown else []
    return "\n".join(lines)


def _numbers(result: CaseResult) -> Iterator[str]:
    """The figures, how the value came about, and why it does not pass."""
    for figure in figures_of(result):
        remark, *more = wrap(figure.remark, _WIDTH - _REMARK, indent="")
        yield f"  {figure.label:12} {figure.shown:>10}   {remark}".rstrip()
        yield from (" " * _REMARK + line for line in more)
    if result.shown.curve:
        course = "  ".join(map(number, result.shown.curve))
        first, *more = textwrap.wrap(course, _WIDTH - 15)
        yield f"  {'by step':12} {first}"
        yield from (" " * 15 + line for line in more)
    judge = [f"judge: {result.shown.judge}"] if result.shown.judge else []
    for note in (*result.notes, *judge, *result.warnings):
        yield f"  {printable(note, 500)}"
    reasons = result.reasons[1:] if result.unseen else result.reasons  # said in the first line
    for reason in (*reasons, *filter(None, [result.refused])):
        for line in reason.splitlines():
            yield f"  {printable(line, 500)}"


def _worst_samples(result: CaseResult) -> Iterator[str]:
    """The samples that lost most; of answers also what was asked, answered and judged."""
    samples: list[ChainShown | AnswerShown] = [*result.shown.chains, *result.shown.answers]
    if not samples:
        return
    head = "samples that lost most"
    names = [printable(sample.sample, 40) for sample in samples]
    width = max(map(width_of, (head, *names)))
    yield f"  {head:{width}} {'baseline':>10} {'now':>10} {'change':>10}"
    for sample, name in zip(samples, names, strict=True):
        change = None if sample.baseline is None else sample.score - sample.baseline
        row = (
            f"  {name}{' ' * (width - width_of(name))} {number(sample.baseline):>10} "
            f"{number(sample.score):>10} {number(change, signed=True):>10}"
        )
        remark = printable(sample.failure or sample.remark, 60)
        fits = width_of(row) + width_of(remark) + 2 <= _WIDTH
        yield f"{row}  {remark}".rstrip() if fits else row
        yield from [] if fits else [f"    {remark}"]
        if isinstance(sample, AnswerShown):
            for part, text in answer_lines(sample, _LONGEST_TEXT):
                first, *more = wrap(text, _WIDTH - 22, indent="")
                yield f"    {part:17} {first}"
                yield from (" " * 22 + line for line in more)


def scores_of_sample(sample: WorstSample) -> str:
    """A sample with its two scores."""
    shown = sample.shown
    before = "-" if shown.baseline is None else short(shown.baseline)
    return f"{printable(shown.sample, 60)}: {before} -> {short(shown.score)}"


def worst_loss(results: Sequence[CaseResult]) -> str:
    """The worst regressed case of which it is known, and the hop, or part of a pipeline, that cost
    it most; empty where there is none.
    """
    for case in worst_first(results):
        whole = sum(hop.cost for hop in case.shown.hops)
        if case.verdict == Verdict.REGRESSED and whole > 0:
            hop = max(case.shown.hops, key=lambda hop: hop.cost)
            at = f" at generation {hop.generation}" if hop.generation else ""
            role = printable(hop.role, 30)
            return f"{name_of(case)} lost {percent(hop.cost / whole)} by the {role}{at}"
    return ""


def next_step(results: Sequence[CaseResult]) -> str:
    """What to do about the worst case, else about undecided ones; empty where there is neither."""
    worst = worst_case(results)
    if worst is not None:
        return worst.presentation.next_step
    cases = undecided(results)
    return shortage_advice(cases).partition(": ")[2] if cases else ""


def sample_words(sample: WorstSample, most: int) -> Iterator[str]:
    """A sample of `worst_samples` in words: its start, the first difference and its end.

    most: characters of a line. Of an image or a sound there are no words: its accepted description
    stands for it.
    """
    shown = sample.shown
    if isinstance(shown, AnswerShown):
        for name, text in list(answer_lines(shown, most))[:3]:
            yield printable(f"{name}: {text}", most)
        return
    links = shown.links or shown.baseline_links
    if not links:
        if shown.failure or shown.remark:
            yield printable(shown.failure or shown.remark, most)
        return
    texts = [
        ["" if link is None else link.text or "" for link in pair]
        for pair in zip_longest(shown.baseline_links, shown.links)
    ]
    described = next((before for before, _ in texts if before), "")
    kind = "a sound" if links[0].sound else "an image"
    start = texts[0][1] or texts[0][0] or f"{kind}: {described}".removesuffix(": ")
    yield printable(f"start: {start}", most)
    differing = next((g for g, (before, now) in enumerate(texts) if before and before != now), None)
    if differing is not None:
        generation, (before, now) = differing, texts[differing]
        begin = f"first difference at step {generation}: "
        room = max(20, most - len(begin) - 4)
        first, second = printable(before, 500), printable(now, 500)
        pairs = enumerate(zip(first, second, strict=False))
        alike = first.rfind(" ", 0, next((at for at, (a, b) in pairs if a != b), 0)) + 1
        if len(first) + len(second) > room and alike > 8:  # else what differs is out of the line
            first, second = f"... {first[alike:]}", f"... {second[alike:]}"
        # The longer one gets what the shorter one leaves.
        first = printable(first, max(room // 2, room - len(second)))
        yield f"{begin}{first} -> {printable(second, max(room // 2, room - len(first)))}"
    last = max((g for g, (_, now) in enumerate(texts) if now), default=None)
    if last is not None:
        yield printable(f"last at step {last}: {texts[last][1]}", most)
    elif shown.failure:
        yield printable(f"failed: {shown.failure}", most)


def figures_first(result: CaseResult) -> str:
    """A case in one line that begins with its numbers: who shows it may cut its end."""
    name = f"{name_of(result)} {'refused' if result.refused else result.verdict}"
    if result.refused or result.judgement.difference is None or result.unseen:
        reason = result.refused or next(iter(result.reasons), result.presentation.meaning)
        value = "" if result.value is None else f"{number(result.value)} now, "
        return f"{value}{printable(reason)}: {name}"
    change = change_of(result.judgement, bounds_used(result))
    tolerance = number(result.tolerance)
    return f"{change}, tolerance {tolerance}, n = {result.n}: {name}"


# -- a run -----------------------------------------------------------------------------------------


def finding_lines(results: Sequence[CaseResult]) -> list[str]:
    """The errors promised, the judges, what became of facts, and what could be raised."""
    return [
        *error_lines(results),
        *judge_lines(results),
        *fact_lines(results),
        *improvement_lines(results),
    ]


def promise_lines(results: Sequence[CaseResult]) -> list[str]:
    """Below the table: the counts, what was found, and what to do about undecided cases."""
    advice = [shortage_advice(cases)] if (cases := undecided(results)) else []
    return [
        *verdict_lines(results), *finding_lines(results), *shortage_lines(results), *advice,
    ]  # fmt: skip


_NAMED = 3  # of cases in a sentence

_PARTICULARS = re.compile(r"samples of [^:;]+|(?<=only now )\([^()]*\)|\b[0-9a-f]{16}\b|\d+")
"""What of a reason is of one case: its part, examples of samples, digests and numbers."""


def shortage_lines(results: Sequence[CaseResult]) -> list[str]:
    """What the samples of each undecided case can tell, those that need most more first."""
    cases = sorted(
        undecided(results), key=lambda case: -(case.judgement.needed or 0) / (case.n or 1)
    )
    lines = []
    for result in cases:
        sight = sight_of(result)
        reason = result.unseen or sight or next(iter(result.reasons), result.presentation.meaning)
        lines.append(f"cannot tell: {name_of(result)}: {printable(reason)}")
    return lines


def undecided_line(results: Sequence[CaseResult]) -> str:
    """The undecided cases for a warning: how many, what to do, the first few by name."""
    cases = undecided(results)
    return f"{shortage_advice(cases)}; {_named(cases)}"


def _named(cases: Sequence[CaseResult]) -> str:
    more = f" and {len(cases) - _NAMED} more" if len(cases) > _NAMED else ""
    return ", ".join(map(name_of, cases[:_NAMED])) + more


def cause_lines(results: Sequence[CaseResult]) -> list[str]:
    """Cases that could not be measured or compared: each reason once, with its cases.

    Reasons that differ in the particulars of a case alone are one. Informational cases are counted
    where a gating one has their reason.
    """
    groups: dict[tuple[str, ...], list[CaseResult]] = {}
    uncompared = [
        result
        for result in results
        if result.verdict in _UNCOMPARED and not (result.accepted or result.refused)
    ]
    for result in without_pooled(uncompared):
        reason = "; ".join(result.reasons) or result.presentation.meaning
        clauses = dict.fromkeys(_PARTICULARS.sub("#", reason).split("; "))
        groups.setdefault((result.verdict, *clauses), []).append(result)
    lines = []
    for (verdict, *_), cases in groups.items():
        if all(result.passes for result in cases):
            continue
        reason = "; ".join(cases[0].reasons) or cases[0].presentation.meaning
        lines.append(
            f"{_UNCOMPARED[Verdict(verdict)]}: {printable(reason, 500)}: "
            f"{counted(len(cases), 'case')} ({_named(cases)})"
        )
    return lines


_UNCOMPARED = {
    Verdict.ERROR: "not measured",
    Verdict.INCOMPLETE: "not measured",
    Verdict.INCOMPARABLE: "not comparable",
}
"""Verdicts without a comparison, but for `no-baseline`: of these a run ends with its own line."""


def pooled_line(results: Sequence[CaseResult]) -> str:
    """The verdicts of whole suites in a line; empty where all of them hold."""
    pooled = [result for result in results if result.is_pooled]
    if all(result.settled for result in pooled):
        return ""
    return f"{counted(len(pooled), 'suite')} as a whole: {counts_line(pooled)}"


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
