"""The figures of one case, each with its remark: what a terminal and the page both show of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_cepbench.gate.sensitivity import Range
from pytest_cepbench.report.number_format import (
    bounds_of,
    bounds_used,
    counted,
    is_same,
    name_of,
    number,
    p_value,
    percent,
    printable,
    word_of,
)
from pytest_cepbench.report.result import AnswerShown, CaseResult, StepShown


class TableLine(NamedTuple):
    """One line: what it is, the number, and what is to be known of it."""

    label: str
    shown: str
    remark: str = ""


HEADS = ("verdict", "case", "now", "baseline", "change", "bounds", "p", "tolerance", "n")
"""Of the columns of `cells_of`."""


def cells_of(result: CaseResult) -> tuple[str, ...]:
    """Cells of a case in one row of a table; distances, which are large, have two decimals."""
    numbers = (
        result.value,
        result.judgement.baseline_value,
        result.judgement.difference,
        result.judgement.low,
        result.judgement.high,
    )
    decimals = 4 if all(abs(value) < 10 for value in numbers if value is not None) else 2
    return (
        word_of(result),
        name_of(result),
        number(result.value, decimals=decimals),
        number(result.judgement.baseline_value, decimals=decimals),
        number(result.judgement.difference, signed=True, decimals=decimals),
        bounds_used(result, decimals=decimals),
        p_value(result.judgement.p),
        number(result.tolerance),
        str(result.n) if result.n else "-",
    )


def shortage_advice(results: Sequence[CaseResult]) -> str:
    """What to do about undecided cases; more looks where there were none."""
    looked = any(len(result.looks) > 1 or result.partial for result in results)
    more = "more samples or seeds" if looked else "try --cep-inconclusive=more, more samples"
    unseen = sum(bool(result.unseen) for result in results)
    advice = f"{more}, or a larger tolerance"
    if unseen:
        other = f"another judge or set-up for {unseen} that could see no drop"
        advice = other if unseen == len(results) else f"{other}; for the others {advice}"
    return f"{counted(len(results), 'case')} undecided: {advice}"


def figures_of(result: CaseResult) -> Iterator[TableLine]:
    """Comparison of a case with its baseline and its anchor; none where nothing was measured."""
    if result.value is None:
        return
    higher = result.higher_is_better
    yield TableLine("baseline", number(result.judgement.baseline_value))
    yield TableLine("now", number(result.value), f"{'higher' if higher else 'lower'} is better")
    yield TableLine(
        "difference",
        number(result.judgement.difference, signed=True),
        "; ".join(filter(None, (_bounds(result), "" if higher else "turned: positive is better"))),
    )
    if result.judgement.p is not None:
        remark = f"sign flips; {result.judgement.alpha or 0.0:.3g} or less tells a drop from noise"
        yield TableLine("p", p_value(result.judgement.p), remark)
    yield TableLine("tolerance", number(-result.tolerance, signed=True), f"{result.gate} gate")
    if result.alpha is not None and not is_same(result.judgement):
        # The share of alpha that test and bounds have: less at several looks or beside an anchor.
        each = "each bound" if result.judgement.p is None else "each test and bound"
        each = "the lower bound" if result.series is not None else each
        looked = len(result.looks) > 1 or result.partial
        among = ["the looks"] if looked else []
        among += ["baseline and anchor"] if result.judgement.since_anchor is not None else []
        part = "" if result.judgement.alpha is None else f"{result.judgement.alpha:.3g} of {each}, "
        remark = f"{part}divided among {', and among '.join(among)}" if among else f"of {each}"
        yield TableLine("alpha", f"{result.alpha:.3g}", remark)
    yield from _series(result)
    apart = result.judgement.units if result.judgement.units != result.n else 0
    yield TableLine("n", str(result.n), f"{apart} independent units" if apart else "")
    if result.judgement.visible is not None:
        remark = "the smallest that fails in 80 % of runs"
        yield TableLine("visible drop", number(result.judgement.visible), remark)
    if result.judgement.needed is not None:
        remark = "samples would decide it in 80 % of runs"
        yield TableLine("needed", str(result.judgement.needed), remark)
    span = range_shown(result)
    if span is not None:
        yield TableLine("chance", number(span.floor), str(span))
    anchor = result.judgement.since_anchor
    if anchor is not None:
        bounds = bounds_of(anchor)
        parts = [
            f"anchor {number(anchor.baseline_value)}",
            bounds if bounds != "-" else "",
            "" if anchor.p is None else f"p {p_value(anchor.p)}",
            f"tolerance {number(-result.anchor_tolerance, signed=True)}",
            printable(anchor.verdict),
        ]
        shown = number(anchor.difference, signed=True)
        yield TableLine("since anchor", shown, ", ".join(filter(None, parts)))


def range_shown(result: CaseResult) -> Range | None:
    """Range of the baseline between chance and the best, or of what is to become it.

    None where that is not known. A baseline of before floors were kept is seen with the floor now.
    """
    value, floor = result.value, result.floor
    if result.judgement.baseline_value is not None and not (result.accepted or result.refused):
        value = result.judgement.baseline_value
        if result.judgement.baseline_floor is not None:
            floor = result.judgement.baseline_floor
    if value is None or floor is None or not result.higher_is_better:
        return None
    return Range(value, floor)


def _bounds(result: CaseResult) -> str:
    """The interval, and what it is: its two bounds have a level each, which differ in a series."""
    shown = bounds_of(result.judgement)
    if shown == "-":
        if result.alpha is None or result.judgement.difference is None:
            return ""
        return (
            "the bounds exclude nothing" if result.judgement.method else "no bounds could be made"
        )
    if result.judgement.low is None and result.judgement.high is None:
        return shown
    one = None if result.series is not None else result.judgement.alpha
    level = "" if one is None else f"{100 * (1 - one):.5g} % "
    kind = f", {printable(result.judgement.method)}" if result.judgement.method else ""
    return f"{shown}, {level}one-sided bounds{kind}"


def _series(result: CaseResult) -> Iterator[TableLine]:
    """Place of the case in a series of gates, and how soon the series would find a drop."""
    series = result.series
    if series is None:
        return
    reference = f" against checkpoint {series.baseline}" if series.baseline else ""
    upper = "" if series.level is None else f", {series.level:.2g} of the upper bound{reference}"
    anchor = "" if series.anchor_level is None else f", {series.anchor_level:.2g} since the anchor"
    yield TableLine(
        "series",
        f"{series.alpha:.2g}",
        f"of {result.alpha or 0.0:.3g} for checkpoint {series.look} of {printable(series.name)}"
        f"{upper}{anchor}",
    )
    if series.delays:
        _, twice, fourfold, decline = (
            "over 20" if checkpoints is None else str(checkpoints)
            for checkpoints in (*series.delays, series.decline)
        )
        yield TableLine(
            "found after",
            twice,
            f"checkpoints, a drop of 2 tolerances with 80 % power; of 4: {fourfold}; of 1: "
            f"tolerated; a decline of half a tolerance at each: {decline}",
        )


def settings_of(result: CaseResult) -> Iterator[TableLine]:
    """Settings that a case is judged by; the remark names where each came from."""

    def origin(setting: str) -> str:
        return printable(result.origins.get(setting, "")) or "default"

    yield TableLine("gate", printable(result.gate), origin("gate"))
    yield TableLine("tolerance", number(result.tolerance), origin("tolerance"))
    if result.judgement.since_anchor is not None:
        anchor = number(result.anchor_tolerance)
        yield TableLine("anchor tolerance", anchor, origin("anchor_tolerance"))
    if result.alpha is not None:
        yield TableLine("alpha", f"{result.alpha:.3g}", origin("alpha"))


def hops_of(result: CaseResult) -> Iterator[TableLine]:
    """Cost of each hop, or part of a pipeline; the remark is its share of the whole cost."""
    whole = sum(hop.cost for hop in result.shown.hops)
    several = len({hop.start for hop in result.shown.hops}) > 1
    for hop in result.shown.hops:
        share = percent(hop.cost / whole) if whole > 0 else "-"
        chains = f"{printable(hop.start, 30)}-first " if several else ""
        generation = f", generation {hop.generation}" if hop.generation else ""
        name = f"{chains}{printable(hop.role, 30)}{generation}"
        yield TableLine(name, number(hop.cost, signed=True), share)


def looks_of(result: CaseResult) -> str:
    """At how many samples the case was judged; empty where it was all of them at once."""
    if len(result.looks) < 2 and not result.partial:
        return ""
    sizes = ", ".join(map(str, result.looks))
    rest = "more are there" if result.partial else "these are all"
    return f"looked at {sizes} samples; {rest}"


def failures_of(result: CaseResult) -> str:
    """The failed chains or answers by kind; empty where none failed."""
    failures = sorted(result.failures.items())
    return ", ".join(f"{count} x {printable(kind)}" for kind, count in failures)


def answer_lines(answer: AnswerShown, most: int) -> Iterator[tuple[str, str]]:
    """Name and text of each part of a shown answer: question, both answers, verdicts.

    most: characters of a text; longer ones are cut. Nothing of an answer that is only named.
    """
    if not answer.question:
        return
    yield "question", printable(steps_in_words(answer.question), most)
    yield "new answer", printable(steps_in_words(answer.steps), most) or "-"
    if answer.opponent:
        texts, opposing = (
            [step.text for step in steps] for steps in (answer.steps, answer.opposing)
        )
        same = bool(texts) and texts == opposing
        words = "the same texts" if same else steps_in_words(answer.opposing)
        yield printable(answer.opponent, 30), printable(words, most) or "-"
    for verdict in answer.verdicts:
        yield "verdict", printable(verdict, most)


def steps_in_words(steps: Sequence[StepShown]) -> str:
    """The steps of an answer, or the parts of a question, in one line; images are only named."""
    parts = ([*step.text.split(), *(["[image]"] if step.image else [])] for step in steps)
    return " | ".join(" ".join(words) for words in parts)
