"""What the page of a run shows, made of results here alone; its templates read it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from math import ceil, log1p
from typing import Any, NamedTuple

from markupsafe import Markup

from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.report.case_table import TableLine, hops_of
from pytest_cepbench.report.chain_pairs import (
    PairedChain,
    SampleValue,
    TextPart,
    case_anchor,
    observed_losses,
    paired_chains,
    paired_steps,
    sample_anchor,
    sample_values,
)
from pytest_cepbench.report.fact_table import (
    PAIR_HEADS,
    fact_lines,
    kind_heads,
    kind_rows,
    loses_most,
    mostly_invented,
    pair_rows,
    share_of,
    step_heads,
    step_rows,
)
from pytest_cepbench.report.headline import (
    WorstSample,
    in_tolerances,
    is_pooled,
    worst_case,
    worst_first,
    worst_samples,
)
from pytest_cepbench.report.number_format import (
    bounds_of,
    counted,
    is_same,
    number,
    p_value,
    word_of,
)
from pytest_cepbench.report.plots import (
    Change,
    change_plot,
    course_plot,
    curve_plot,
    reach_of,
    square_plot,
    strip_plot,
)
from pytest_cepbench.report.result import AnswerShown, CaseResult, FactsShown, chains_shown
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    error_lines,
    improvement_lines,
    judge_lines,
    verdict_lines,
)
from pytest_cepbench.report.writers import RunFacts, SuiteProvenance

_MOST_CARDS = 3
"""Samples that are shown before everything else; more are named."""

_UNJUDGED = (Verdict.ERROR, Verdict.INCOMPLETE, Verdict.INCOMPARABLE, Verdict.NO_BASELINE)

_NUMBERS = re.compile(r"\d+")

_STRONGEST = 4  # shades of a heat map


# -- cases -----------------------------------------------------------------------------------------


class HopView(NamedTuple):
    """The cost of a hop. width: of its bar in percent. observed: the loss there; "" for none."""

    cost: TableLine
    width: float
    gain: bool
    observed: str


class TitledTable(NamedTuple):
    """Cells in rows below heads. title: what it is about."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class FactsView(NamedTuple):
    """What became of the facts of a case.

    kinds, steps: by kind, and by step of a role; the latter without rows where nothing changes.
    loses_most, invented: a sentence on all kinds each; empty where it cannot be said.
    squares: read right and drawn right, by pair of a text and a picture: drawing and caption.
    by_kind: the same kind by kind.
    """

    shown: FactsShown
    kinds: TitledTable
    steps: TitledTable
    loses_most: str
    invented: str
    squares: Sequence[tuple[Markup, str]]
    by_kind: Sequence[TitledTable]


class StripView(NamedTuple):
    """The paired differences of a case: counts in words, the plot, and the samples as a table.

    rows: a sample, and the address of its chain; empty where it is not shown.
    """

    counts: str
    plot: Markup
    rows: Sequence[tuple[SampleValue, str]]
    linked: bool


class AnswerView(NamedTuple):
    """An answer in the details of a case. whole: whether it is shown, or only its scores."""

    shown: AnswerShown
    anchor: str
    whole: bool


class CaseView(NamedTuple):
    """A case: its row in a table and its details.

    anchor: `#case-...` is its row, `#details-...` are its details.
    badge: classes of its verdict.
    interval: plot of its change, or words where there is none.
    course: plot of its curve; empty without one.
    noteworthy: whether its details are not folded away with others; opened: whether they are open.
    """

    result: CaseResult
    anchor: str
    badge: str
    interval: Markup | str
    course: Markup | str
    noteworthy: bool
    opened: bool
    hops: Sequence[HopView]
    facts: FactsView | None
    strip: StripView | None
    chains: Sequence[PairedChain]
    answers: Sequence[AnswerView]
    replaces_answers: bool


def change_of_case(result: CaseResult) -> Change | None:
    """The change of a case; None where nothing was compared."""
    kind = f"{result.presentation.color} {result.verdict}"
    return change_of_judgement(result.judgement, result.tolerance, kind)


def change_of_judgement(judged: Judgement, tolerance: float, kind: str) -> Change | None:
    """A difference with its bounds; None where nothing was compared. kind: its classes."""
    if judged.difference is None:
        return None
    return Change(judged.difference, judged.low, judged.high, tolerance, kind)


def interval_of(judged: Judgement, change: Change | None, reach: float) -> Markup | str:
    """The plot of a change; words where model or answers are the accepted ones; else nothing."""
    if change is None:
        return ""
    if is_same(judged):
        return judged.method
    p = "" if judged.p is None else f"p {p_value(judged.p)}, "
    title = f"difference {number(change.value, signed=True)}, bounds {bounds_of(judged)}, {p}"
    return change_plot(change, reach, f"{title}tolerance {number(change.tolerance)}")


def replaces_answers(result: CaseResult) -> bool:
    """True where answers become the accepted ones in place of others."""
    measured = result.measurement
    return bool(
        result.accepted and result.shown.answers and measured is not None and measured.answers
    )


def case_view(
    result: CaseResult, reach: float, pictured: Collection[str], opened: CaseResult | None
) -> CaseView:
    """A case of a page.

    reach: end of the axis of its suite, in tolerances.
    pictured: the cases whose chains are shown; see `pictured_cases`.
    opened: the case whose details are open.
    """
    anchor, shown = case_anchor(result), result.shown
    shows_chains = anchor in pictured
    replaces = replaces_answers(result)
    chains = list(paired_chains(result, pictured=shows_chains))
    answers = [
        AnswerView(
            answer,
            sample_anchor(result, answer.sample),
            bool(answer.question) and (shows_chains or replaces),
        )
        for answer in shown.answers
    ]
    drawn = [chain.shown.sample for chain in chains if chain.steps]
    drawn += [view.shown.sample for view in answers if view.whole]
    remarkable = (
        result.reasons, result.notes, shown.judge, result.failures, result.warnings,
        result.refused, not result.settled, replaces, shows_chains,
    )  # fmt: skip
    largest = max((abs(hop.cost) for hop in shown.hops), default=0.0)
    observed = observed_losses(result)
    known = any(loss is not None for loss in observed)
    hops = [
        HopView(
            line,
            round(100 * abs(hop.cost) / largest, 1) if largest else 0.0,
            hop.cost < 0,
            number(loss, signed=True) if known else "",
        )
        for line, hop, loss in zip(hops_of(result), shown.hops, observed, strict=True)
    ]
    return CaseView(
        result=result,
        anchor=anchor,
        badge=badge_of(result),
        interval=interval_of(result.judgement, change_of_case(result), reach),
        course=""
        if len(shown.curve) < 2
        else course_plot(shown.curve, higher_is_better=result.higher_is_better),
        noteworthy=result.primary and any(remarkable),
        opened=result is opened,
        hops=hops,
        facts=None if shown.facts is None else _facts(shown.facts),
        strip=_strip(result, drawn),
        chains=chains,
        answers=answers,
        replaces_answers=replaces,
    )


def badge_of(result: CaseResult) -> str:
    """Classes of a verdict."""
    color = "accepted" if result.accepted else result.presentation.color
    return f"{color} {result.verdict} {'' if result.primary else 'informational'}".strip()


def _strip(result: CaseResult, drawn: Sequence[str]) -> StripView | None:
    change = change_of_case(result)
    differences = result.shown.differences
    if len(differences) < 2 or change is None:
        return None
    values = [value for value in sample_values(result) if value.difference is not None]
    worse, better = (
        sum(sign * difference > 0 for difference in differences.values()) for sign in (-1, 1)
    )
    same = len(differences) - worse - better
    counts = f"{len(differences)} samples: {worse} worse, {same} equal, {better} better"
    links = {sample: f"#{sample_anchor(result, sample)}" for sample in drawn}
    plot = strip_plot(
        {value.sample: differences[value.sample] for value in values},
        change,
        links,
        f"paired differences of {counts}; mean {number(result.judgement.difference, signed=True)}",
    )
    rows = [(value, links.get(value.sample, "")) for value in values]
    return StripView(counts, plot, rows, bool(drawn))


def _facts(facts: FactsShown) -> FactsView:
    squares = []
    for pair in facts.every.tables:
        cells = pair.both, pair.read, pair.drawn, pair.neither
        whole = sum(cells)
        shares = [share_of(cell, whole) for cell in cells]
        # So light that the number in it can be read.
        shades = [0.05 + round(0.55 * cell / whole, 2) if whole else 0.05 for cell in cells]
        places = "right in both", "in the text alone", "in the picture alone", "in neither"
        words = ", ".join(map(" ".join, zip(places, shares, strict=True)))
        kinds = "agree", "apart", "apart", "neither"
        plot = square_plot(
            list(zip(shades, shares, kinds, strict=True)),
            f"text {pair.text} and picture {pair.picture}: {words}",
        )
        squares.append((plot, f"text {pair.text}, picture {pair.picture}"))
    kinds_of = [TitledTable(kind.kind, PAIR_HEADS, list(pair_rows(kind))) for kind in facts.kinds]
    return FactsView(
        shown=facts,
        kinds=TitledTable("facts by kind", kind_heads(facts), list(kind_rows(facts))),
        steps=TitledTable(
            "facts that change and appear", step_heads(facts), list(step_rows(facts))
        ),
        loses_most=loses_most(facts),
        invented=mostly_invented(facts),
        squares=squares,
        by_kind=kinds_of if squares else [],
    )


# -- the first screen ------------------------------------------------------------------------------


class Models(NamedTuple):
    """Who was compared with whom.

    candidate, baseline: the models of all suites, each once: what was typed, and the beginning of
    the fingerprint, empty where it is not known.
    accepted: when the latest baselines were accepted and by which commit; empty if not known.
    sides: suites in which the same candidate was compared with the same baselines: one of them, for
    what they have in common, and their names.
    """

    candidate: Collection[tuple[str, str]]
    baseline: Collection[tuple[str, str]]
    accepted: str
    sides: Collection[tuple[SuiteProvenance, list[str]]]


def models_of(suites: Sequence[SuiteProvenance]) -> Models:
    """Who was compared with whom in these suites."""
    sides: dict[object, tuple[SuiteProvenance, list[str]]] = {}
    candidate: dict[tuple[str, str], None] = {}
    baseline: dict[tuple[str, str], None] = {}
    for suite in suites:
        key = (*suite.candidate, suite.recorded, None, *suite.baselines, suite.accepted)
        sides.setdefault(key, (suite, []))[1].append(suite.suite)
        candidate |= {(model.spec, model.fingerprint[:8]): None for model in suite.candidate}
        if suite.recorded:
            candidate[suite.recorded, ""] = None
        baseline |= {(model.spec, model.fingerprint[:8]): None for model in suite.baselines}
    latest = max(suites, key=lambda suite: suite.accepted, default=None)
    accepted = ""
    if latest is not None and latest.accepted:
        accepted = f"accepted {latest.accepted[:10]}"
        if latest.uncommitted:
            accepted += ", not committed"
        elif latest.accepted_commit:
            accepted += f" by {latest.accepted_commit[:8]}"
        if len({suite.accepted for suite in suites if suite.accepted}) > 1:
            accepted += "; others earlier"
    return Models(candidate, baseline, accepted, sides.values())


class ForestRow(NamedTuple):
    """A gating case in the forest plot. shown: its change in words, or its verdict."""

    name: str
    address: str
    badge: str
    interval: Markup | str
    shown: str


def forest_rows(results: Sequence[CaseResult]) -> list[ForestRow]:
    """The gating cases against their tolerances on one axis: those that fail, the worst first,
    those that are undecided, and those that hold.
    """
    cases = [result for result in results if result.primary and not is_pooled(result)]
    others = [result for result in cases if result.passes]
    others.sort(key=lambda r: (r.verdict != Verdict.INCONCLUSIVE or r.accepted, _drop(r)))
    cases = [*worst_first(cases), *others]
    changes = [change for case in cases if (change := change_of_case(case)) is not None]
    reach = reach_of(changes)
    several = len({case.suite for case in cases}) > 1
    return [
        ForestRow(
            f"{case.suite} {case.part} {case.label}" if several else f"{case.part} {case.label}",
            f"details-{case_anchor(case)}",
            badge_of(case),
            interval_of(case.judgement, change_of_case(case), reach),
            word_of(case)
            if case.judgement.difference is None
            else number(case.judgement.difference, signed=True),
        )
        for case in cases
    ]


class Cell(NamedTuple):
    """An artifact of a sample: an image or a sound by its digest, or the parts of a text.

    mark: the element of HTML around parts that the other text has not.
    """

    image: str | None
    parts: Sequence[TextPart]
    mark: str = ""


class CardView(NamedTuple):
    """One of the samples of the run that lost most.

    anchor: its address in the page.
    cells: what it is about and where it first differs from the baseline's, each with its name;
    none where it is only named.
    """

    worst: WorstSample
    anchor: str
    cells: Sequence[tuple[str, Cell]]


def _card(worst: WorstSample) -> CardView:
    shown, cells = worst.shown, []
    if not worst.is_whole:
        pass
    elif isinstance(shown, AnswerShown):
        parts = ("question", shown.question), (shown.opponent, shown.opposing)
        for name, steps in (*parts, ("new answer", shown.steps)):
            for step in steps[:1]:
                image = step.image if not step.text else None
                cells.append((name, Cell(image, [TextPart(step.text)])))
    else:
        pairs = paired_steps(shown)
        first = next((step for step in pairs if step.first), pairs[-1])
        start = None if first is pairs[0] else pairs[0].either
        if start is not None:
            cells.append(("start", Cell(start.file, [TextPart(start.text or "")])))
        at = f"generation {first.generation}" if first.generation else "start"
        if first.before is not None:
            cell = Cell(first.before.file, first.before_text, "del")
            cells.append((f"{worst.result.judgement.reference}, {at}", cell))
        if first.now is not None:
            mark = "ins" if first.before is not None else ""
            cells.append((f"now, {at}", Cell(first.now.file, first.now_text, mark)))
    return CardView(worst, sample_anchor(worst.result, shown.sample), cells)


class Cause(NamedTuple):
    """Cases that have one reason not to be judged, or failures of the same kind.

    text: the reason, as the first of them gives it. cases: anchor and name of each.
    """

    text: str
    cases: list[tuple[str, str]]


def causes(results: Sequence[CaseResult]) -> list[Cause]:
    """Why cases were not judged, or have failed samples, the most frequent reason first.

    Reasons that differ in numbers alone are one.
    """
    by_text: dict[str, Cause] = {}
    for result in results:
        reasons: list[str] = []
        if result.refused:
            reasons = [result.refused]
        elif result.verdict in _UNJUDGED and result.reasons and not result.accepted:
            reasons = ["; ".join(result.reasons)]
        elif not result.settled:
            reasons = [f"failed samples: {kind}" for kind in result.failures]
        name = f"{result.suite} {result.part}, {result.label}"
        for text in reasons:
            cause = by_text.setdefault(_NUMBERS.sub("#", text), Cause(text, []))
            cause.cases.append((case_anchor(result), name))
    return sorted(by_text.values(), key=lambda cause: -len(cause.cases))


def pictured_cases(results: Sequence[CaseResult]) -> frozenset[str]:
    """Names of the cases whose chains are shown, as `case_anchor` has them.

    All that are not settled, and of each suite the one that lost most of those that hold: cases of
    which a sample lost come first, then the mean drop decides.
    """
    names = {case_anchor(result) for result in results if not result.settled}
    worst: dict[str, tuple[tuple[bool, float], CaseResult]] = {}
    for result in results:
        pictured = any(chain.links for chain in chains_shown(result))
        pictured = pictured or any(answer.question for answer in result.shown.answers)
        if result.settled and result.primary and pictured:
            compared = result.judgement.difference is not None
            weight = bool(result.shown.chains), max(0.0, -_drop(result)) if compared else -1.0
            if result.suite not in worst or weight > worst[result.suite][0]:
                worst[result.suite] = weight, result
    return frozenset(names | {case_anchor(result) for _, result in worst.values()})


def _drop(result: CaseResult) -> float:
    return in_tolerances(result.judgement.difference, result.tolerance)


# -- suites ----------------------------------------------------------------------------------------


class HeatCell(NamedTuple):
    """A cell of a heat map. kind: its classes. shown: its text. title: of a pointer."""

    address: str
    kind: str
    shown: str
    title: str


class HeatMap(NamedTuple):
    """Numbers in shades. rows: name -> a cell for each column, or None."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[HeatCell | None]]]


def heat_map(results: Sequence[CaseResult]) -> HeatMap | None:
    """Changes of a suite's cases in tolerances; None where fewer than two parts were compared.

    In shades of 0 for no change to 4 for 8 tolerances and more.
    """
    compared = [result for result in results if result.judgement.difference is not None]
    parts = list(dict.fromkeys(result.part for result in compared))
    if len(parts) < 2:
        return None
    cells = {}
    for result in compared:
        difference = result.judgement.difference or 0.0
        change = number(difference, signed=True)
        shade, worse, shown = 0, "gained", change
        if result.tolerance > 0:
            tolerances = difference / result.tolerance
            shade = ceil(min(1.0, log1p(abs(tolerances)) / log1p(8.0)) * _STRONGEST)
            worse = "worse" if tolerances < 0 else "gained"
            shown = f"{tolerances:+.1f}"
        cells[result.part, result.label] = HeatCell(
            f"#details-{case_anchor(result)}",
            f"{result.verdict} shade{shade} {worse}",
            shown,
            f"{result.part}, {result.label}: {word_of(result)} {change}",
        )
    metrics = list(dict.fromkeys(result.label for result in compared))
    return HeatMap(metrics, [(p, [cells.get((p, metric)) for metric in metrics]) for p in parts])


class CurveView(NamedTuple):
    """The curves of a case.

    quantity: what is drawn, in words.
    known: whether the reference's is drawn beside it.
    kind: class of this run's curve.
    """

    result: CaseResult
    quantity: str
    samples: int
    known: bool
    kind: str
    plot: Markup


def curve_views(results: Sequence[CaseResult]) -> list[CurveView]:
    """The curves of a suite: those of its cases with most samples, equal ones once.

    Cases that regressed come first, and stand for others of the same curve.
    """
    drawn = [result for result in results if result.shown.curve_now is not None]
    most = max((result.n for result in drawn), default=0)
    ordered = sorted(
        (result for result in drawn if result.n == most),
        key=lambda result: (result.verdict != Verdict.REGRESSED, not result.primary),
    )
    views: dict[tuple[object, ...], CurveView] = {}
    for result in ordered:
        now, before = result.shown.curve_now, result.shown.curve_reference
        assert now is not None  # as chosen
        key = (*now.generations, *now.mean, *([] if before is None else before.mean))
        if key in views:
            continue
        if before is not None and before.generations != now.generations:
            before = None
        quantity = "similarity to the start"
        if result.shown.facts is not None:
            exact = result.shown.facts.precision
            quantity = "F1 of facts" if exact else "share of facts that are right"
        elif result.measurement is not None and result.measurement.shares:
            quantity = "share that is right"
        kind = "regressed" if result.verdict == Verdict.REGRESSED else ""
        plot = curve_plot(now, before, result.judgement.reference, quantity, kind)
        views[key] = CurveView(result, quantity, now.n, before is not None, kind, plot)
    return list(views.values())


# -- the whole run ---------------------------------------------------------------------------------


def run_view(facts: RunFacts, results: Sequence[CaseResult]) -> dict[str, Any]:
    """All that the page of a run shows, but for its images, by the names that `run.html` reads.

    forest: all gating cases, the worst first.
    cards: samples that lost most; others: more of them, which are only named.
    suites: of each its cases, its plots and the end of its axis in tolerances (None where nothing
    was compared), and the cases whose details are shown by themselves, those that fail first.
    lines: counts, promises and what else is said of the whole run.
    choices: name and values of each filter of its cases.
    """
    pictured = pictured_cases(results)
    opened = worst_case(results) or next(filter(replaces_answers, results), None)
    by_suite: dict[str, list[CaseResult]] = {}
    for result in results:
        by_suite.setdefault(result.suite, []).append(result)
    suites = []
    for place, (name, own) in enumerate(by_suite.items(), 1):
        changes = [change for result in own if (change := change_of_case(result)) is not None]
        reach = reach_of(changes)
        cases = [case_view(result, reach, pictured, opened) for result in own]
        rest = [case for case in cases if not case.noteworthy]
        suites.append(
            {
                "name": name,
                "anchor": f"suite-{place}",
                "counts": counts_line(own),
                "cases": cases,
                "reach": reach if changes else None,
                "heat": heat_map(own),
                "curves": curve_views(own),
                "noteworthy": sorted(
                    (case for case in cases if case.noteworthy), key=lambda c: c.result.passes
                ),
                "rest": rest,
                "rest_counts": counts_line([case.result for case in rest]),
            }
        )
    samples = [_card(sample) for sample in worst_samples(results)]
    cards = [sample for sample in samples if sample.cells][:_MOST_CARDS]
    provenance = facts.provenance
    return {
        "facts": facts,
        "title": facts.headline or f"cepbench: {facts.verdict}",
        "command": "" if provenance is None else provenance.command,
        "models": None if provenance is None else models_of(provenance.suites),
        "forest": forest_rows(results),
        "cards": cards,
        "others": [sample for sample in samples if sample not in cards],
        "causes": [(counted(len(own), "case"), text, own) for text, own in causes(results)],
        "suites": suites,
        "lines": [
            *verdict_lines(results),
            *error_lines(results),
            effort_line(facts.efforts(results)),
            *judge_lines(results),
            *fact_lines(results),
            *improvement_lines(results),
        ],
        "choices": [
            ("verdict", sorted({result.word.lower() for result in results})),
            ("suite", sorted(by_suite)),
            ("metric", sorted({result.label for result in results})),
        ],
    }
