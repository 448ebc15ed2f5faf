"""The figures of one case, each with its remark, and what became of its facts: for all reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.measurement import rounded
from pytest_cepbench.gate.sensitivity import Range
from pytest_cepbench.metrics.facts import FactKind, Facts
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
from pytest_cepbench.report.result import (
    AnswerShown,
    CaseResult,
    StepShown,
)


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
    """Place of the case in a series of gates."""
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


# -- what became of facts: which kinds are lost, when, and by which role ---------------------------

_ROLE_STEPS = {"describer": "description", "generator": "drawing"}
_ARTIFACTS = {"describer": "text", "generator": "picture"}


def fact_table(facts: Facts) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads, and cells of each kind of facts, and of all where there are several.

    n, the share right at the last generation, half-life in generations, and of the facts that are
    right before a step of each role the share that is wrong after it.
    """
    lost = (f"{_ARTIFACTS[loss.role]} loses" for loss in facts.every.losses)
    heads = ("facts", "n", f"right at {facts.generations[-1]}", "half-life (95 %)", *lost)
    every = [facts.every] if len(facts.kinds) > 1 else []
    rows = [
        (
            printable(kind.kind) or "all kinds",
            str(kind.facts),
            percent(kind.curve[-1]),
            _half_life(kind),
            *(percent(loss.lost / loss.right) if loss.right else "-" for loss in kind.losses),
        )
        for kind in (*facts.kinds, *every)
    ]
    return heads, rows


def _half_life(kind: FactKind) -> str:
    """A half-life with its interval, or how long the chain saw less than half go."""
    value, low, high = (
        f"over {kind.last}" if end is None else f"{end:.1f}"
        for end in (kind.half_life, kind.low, kind.high)
    )
    if kind.half_life is None:
        return value if kind.low is None else f"{value} (from {low})"
    return f"{value} ({low} to {high})"


def loses_most(facts: Facts) -> str:
    """The role of which a step loses more facts, in a sentence; empty where it cannot be said."""
    shares = [(loss.lost / loss.right, loss) for loss in facts.every.losses if loss.right]
    if len(shares) < 2:
        return ""
    (most, first), (least, second) = sorted(shares, key=lambda pair: pair[0], reverse=True)
    steps = [_ROLE_STEPS[loss.role] for loss in (first, second)]
    if most == least:
        return f"a {steps[0]} loses {percent(most)} of the right facts, and so does a {steps[1]}"
    return f"a {steps[0]} loses {percent(most)} of the right facts, a {steps[1]} {percent(least)}"


def fact_lines(results: Iterable[CaseResult]) -> list[str]:
    """A line for each case about facts: what is left, and which kind is lost first."""
    lines = []
    for result in results:
        facts = result.shown.facts
        if facts is None:
            continue
        right = f"{percent(facts.every.curve[-1])} of {facts.every.facts} right"
        parts = [f"{right} after {counted(facts.generations[-1], 'generation')}"]
        if any(loss.lost or loss.wrong for loss in facts.every.losses):
            first = min(facts.kinds, key=lambda kind: (kind.half_life or inf, *kind.curve[-1:]))
            parts += [
                f"half-life of {printable(first.kind)}, the shortest: {_half_life(first)}",
                loses_most(facts),
            ]
        line = f"facts of {result.suite} {result.part} [{result.metric}]: "
        lines.append(printable(line + "; ".join(filter(None, parts)), 700))
    return lines


# -- samples ---------------------------------------------------------------------------------------


class SampleValue(NamedTuple):
    """A sample of a case.

    sample: its id.
    categories: those of the case that it belongs to; empty where they are not known.
    value: its score, in the case's metric; None where it is not known.
    baseline: the same of the reference, which is the baseline or the anchor; None where the sample
        was not compared.
    difference: of both, turned so that positive is better; None where it was not compared.
    """

    sample: str
    categories: tuple[str, ...]
    value: float | None
    baseline: float | None
    difference: float | None


def sample_values(result: CaseResult) -> list[SampleValue]:
    """The samples of a case, those that lost most first, then those that were not compared.

    Empty where the score is one of a whole set, and where the report does not have the scores.
    """
    measured, differences = result.measurement, result.shown.differences
    categories: dict[str, tuple[str, ...]] = {}
    scores: dict[str, float] = {}
    if measured is not None:
        for category, part in measured.scores.items():
            for sample in part:
                categories[sample] = (*categories.get(sample, ()), category)
        if measured.answers and not measured.sizes:
            scores = battle_scores(result)
        elif not measured.sizes:
            scores = {name: s for part in measured.scores.values() for name, s in part.items()}
    sign = 1.0 if result.higher_is_better else -1.0
    compared = sorted(differences, key=lambda name: (differences[name], name))
    values = []
    for sample in (*compared, *sorted(scores.keys() - differences.keys())):
        value, difference = scores.get(sample), differences.get(sample)
        baseline = None
        if value is not None and difference is not None:
            baseline = rounded(value - sign * difference)
        values.append(SampleValue(sample, categories.get(sample, ()), value, baseline, difference))
    return values


def battle_scores(result: CaseResult) -> dict[str, float]:
    """Sample -> its score in the battles of a case.

    The measurement has answers in place of scores: every accepted answer scores one half against
    itself, so that the differences tell what the new one scores.
    """
    sign = 1.0 if result.higher_is_better else -1.0
    return {name: rounded(EVEN + sign * d) for name, d in result.shown.differences.items()}
