"""What the page of a run shows, as records that its templates read; made of results here alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, log1p
from typing import NamedTuple

from markupsafe import Markup

from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.report.case_table import (
    TableLine,
    failures_of,
    figures_of,
    hops_of,
    looks_of,
    settings_of,
)
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
    shade_of,
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
from pytest_cepbench.report.provenance import SuiteProvenance
from pytest_cepbench.report.result import (
    AnswerShown,
    CaseResult,
    FactsShown,
    FactTableShown,
    StepShown,
    chains_shown,
)
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    error_lines,
    improvement_lines,
    judge_lines,
    verdict_lines,
)
from pytest_cepbench.report.writers import RunFacts

_MOST_CARDS = 3
"""Samples that are shown before everything else; more are named."""

FEW_ROWS, MANY_ROWS = 8, 20
"""Rows of the forest plot that a narrow screen and any screen show; others are folded away."""

_UNJUDGED = (Verdict.ERROR, Verdict.INCOMPLETE, Verdict.INCOMPARABLE, Verdict.NO_BASELINE)

_NUMBERS = re.compile(r"\d+")

_STRONGEST = 4  # shades of a heat map


# -- cases -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HopView:
    """The cost of a hop. width: of its bar in percent. observed: the loss there; "" for none."""

    cost: TableLine
    width: float
    gain: bool
    observed: str


class Table(NamedTuple):
    """Cells in rows below heads. title: what it is about."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class FactsView:
    """What became of the facts of a case.

    kinds, steps: by kind, and by step of a role; the latter without rows where nothing changes.
    loses_most, invented: a sentence on all kinds each; empty where it cannot be said.
    squares: read right and drawn right, by pair of a text and a picture: drawing and caption.
    by_kind: the same kind by kind.
    """

    shown: FactsShown
    kinds: Table
    steps: Table
    loses_most: str
    invented: str
    squares: Sequence[tuple[Markup, str]]
    by_kind: Sequence[Table]


@dataclass(frozen=True)
class StripView:
    """The paired differences of a case: counts in words, the plot, and the samples as a table.

    rows: a sample, and the address of its chain; empty where it is not shown.
    """

    counts: str
    plot: Markup
    rows: Sequence[tuple[SampleValue, str]]
    linked: bool


@dataclass(frozen=True)
class AnswerView:
    """An answer in the details of a case. whole: whether it is shown, or only its scores."""

    shown: AnswerShown
    anchor: str
    whole: bool


@dataclass(frozen=True)
class CaseView:
    """A case: its row in a table and its details.

    result: of the gate.
    anchor: `#case-...` is its row, `#details-...` are its details.
    badge: classes of its verdict; word: the verdict as shown.
    interval: plot of its change, or words where there is none.
    course: plot of its curve; empty without one.
    noteworthy: whether its details are not folded away with others; opened: whether they are open.
    reasons: why it is not judged or sees nothing, beside what the verdict means.
    missing_chains: why chains of the reference are missing, and what makes them.
    """

    result: CaseResult
    anchor: str
    badge: str
    word: str
    interval: Markup | str
    course: Markup | str
    noteworthy: bool
    opened: bool
    reasons: Sequence[str]
    failures: str
    figures: Sequence[TableLine]
    settings: Sequence[TableLine]
    looks: str
    hops: Sequence[HopView]
    facts: FactsView | None
    strip: StripView | None
    missing_chains: str
    chains: Sequence[PairedChain]
    answers: Sequence[AnswerView]
    replaces_answers: bool

    @property
    def search(self) -> str:
        """All that a search looks through."""
        result = self.result
        words = result.suite, result.part, result.label, self.word, self.failures
        return " ".join(words)


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
    anchor = case_anchor(result)
    shows_chains = anchor in pictured
    replaces = replaces_answers(result)
    chains = list(paired_chains(result, pictured=shows_chains))
    answers = [
        AnswerView(
            answer,
            sample_anchor(result, answer.sample),
            bool(answer.question) and (shows_chains or replaces),
        )
        for answer in result.shown.answers
    ]
    drawn = [chain.shown.sample for chain in chains if chain.steps]
    drawn += [view.shown.sample for view in answers if view.whole]
    return CaseView(
        result=result,
        anchor=anchor,
        badge=badge_of(result),
        word=word_of(result),
        interval=interval_of(result.judgement, change_of_case(result), reach),
        course=""
        if len(result.shown.curve) < 2
        else course_plot(result.shown.curve, higher_is_better=result.higher_is_better),
        noteworthy=_noteworthy(result, shows_chains=shows_chains),
        opened=result is opened,
        reasons=result.reasons[1:] if result.unseen else result.reasons,
        failures=failures_of(result),
        figures=list(figures_of(result)),
        settings=list(settings_of(result)),
        looks=looks_of(result),
        hops=_hops(result),
        facts=None if result.shown.facts is None else _facts(result.shown.facts),
        strip=_strip(result, drawn),
        missing_chains=result.shown.reference_chains
        if any(chain.steps for chain in chains)
        else "",
        chains=chains,
        answers=answers,
        replaces_answers=replaces,
    )


def badge_of(result: CaseResult) -> str:
    """Classes of a verdict."""
    color = "accepted" if result.accepted else result.presentation.color
    return f"{color} {result.verdict} {'' if result.primary else 'informational'}".strip()


def _noteworthy(result: CaseResult, *, shows_chains: bool) -> bool:
    """True where the details of a case are shown by themselves, not folded away with others."""
    remarkable = bool(
        result.reasons
        or result.notes
        or result.shown.judge
        or result.failures
        or result.warnings
        or result.refused
    )
    remarkable = remarkable or not result.settled or replaces_answers(result)
    return result.primary and (remarkable or shows_chains)


def _hops(result: CaseResult) -> list[HopView]:
    largest = max((abs(hop.cost) for hop in result.shown.hops), default=0.0)
    observed = observed_losses(result)
    known = any(loss is not None for loss in observed)
    return [
        HopView(
            line,
            round(100 * abs(hop.cost) / largest, 1) if largest else 0.0,
            hop.cost < 0,
            number(loss, signed=True) if known else "",
        )
        for line, hop, loss in zip(hops_of(result), result.shown.hops, observed, strict=True)
    ]


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
    pairs = facts.every.tables
    kinds = [Table(kind.kind, PAIR_HEADS, list(pair_rows(kind))) for kind in facts.kinds]
    return FactsView(
        shown=facts,
        kinds=Table("facts by kind", kind_heads(facts), list(kind_rows(facts))),
        steps=Table("facts that change and appear", step_heads(facts), list(step_rows(facts))),
        loses_most=loses_most(facts),
        invented=mostly_invented(facts),
        squares=[_square(pair) for pair in pairs],
        by_kind=kinds if pairs else [],
    )


def _square(pair: FactTableShown) -> tuple[Markup, str]:
    cells = pair.both, pair.read, pair.drawn, pair.neither
    whole = sum(cells)
    places = "right in both", "in the text alone", "in the picture alone", "in neither"
    kinds = "agree", "apart", "apart", "neither"
    shares = [
        (float(shade_of(cell, whole)), share_of(cell, whole), kind)
        for cell, kind in zip(cells, kinds, strict=True)
    ]
    words = (f"{place} {share}" for place, (_, share, _) in zip(places, shares, strict=True))
    title = f"text {pair.text} and picture {pair.picture}: {', '.join(words)}"
    return square_plot(shares, title), f"text {pair.text}, picture {pair.picture}"


# -- the first screen ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelLine:
    """A model in one line: what was typed, and the beginning of its fingerprint."""

    spec: str
    digest: str


@dataclass(frozen=True)
class Sides:
    """Suites in which the same candidate was compared with the same baselines.

    first: one of them, for what they have in common.
    suites: their names.
    """

    first: SuiteProvenance
    suites: list[str]


@dataclass(frozen=True)
class Models:
    """Who was compared with whom.

    candidate, baseline: the models of all suites, each once.
    accepted: when the baselines were accepted and by which commit, in words; empty if not known.
    sides: candidate and baselines of the suites, with all that is known of them.
    """

    candidate: Sequence[ModelLine]
    baseline: Sequence[ModelLine]
    accepted: str
    sides: Sequence[Sides]


def models_of(facts: RunFacts) -> Models | None:
    """Who was compared with whom; None where that was not gathered."""
    if facts.provenance is None:
        return None
    pairs: dict[object, Sides] = {}
    for suite in facts.provenance.suites:
        key = (*suite.candidate, suite.recorded, None, *suite.baselines, suite.accepted)
        pairs.setdefault(key, Sides(suite, [])).suites.append(suite.suite)
    candidate: dict[ModelLine, None] = {}
    baseline: dict[ModelLine, None] = {}
    for suite in facts.provenance.suites:
        candidate |= {ModelLine(m.spec, m.fingerprint[:8]): None for m in suite.candidate}
        if suite.recorded:
            candidate[ModelLine(suite.recorded, "")] = None
        baseline |= {ModelLine(m.spec, m.fingerprint[:8]): None for m in suite.baselines}
    known = [suite for suite in facts.provenance.suites if suite.accepted]
    return Models(list(candidate), list(baseline), accepted_line(known), list(pairs.values()))


def accepted_line(suites: Sequence[SuiteProvenance]) -> str:
    """When the latest of some baselines was accepted and by which commit; empty for none."""
    if not suites:
        return ""
    latest = max(suites, key=lambda suite: suite.accepted)
    words = f"accepted {latest.accepted[:10]}"
    if latest.uncommitted:
        words += ", not committed"
    elif latest.accepted_commit:
        words += f" by {latest.accepted_commit[:8]}"
    earlier = len({suite.accepted for suite in suites}) > 1
    return f"{words}; others earlier" if earlier else words


def moment(time: str) -> str:
    """An ISO 8601 time as people read it."""
    return time.replace("T", " ").replace("+00:00", " UTC")


@dataclass(frozen=True)
class ForestRow:
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


@dataclass(frozen=True)
class Cell:
    """An artifact of a sample: an image by its digest, or the parts of a text.

    mark: the element of HTML around parts that the other text has not.
    """

    image: str | None
    parts: Sequence[TextPart]
    mark: str = ""


@dataclass(frozen=True)
class CardView:
    """One of the samples of the run that lost most.

    worst: the sample.
    anchor: its address in the page.
    cells: what it is about and where it first differs from the baseline's, each with its name;
    none where it is only named.
    """

    worst: WorstSample
    anchor: str
    cells: Sequence[tuple[str, Cell]]


def card_view(worst: WorstSample) -> CardView:
    """A sample that lost most."""
    anchor = sample_anchor(worst.result, worst.shown.sample)
    return CardView(worst, anchor, _cells(worst) if worst.is_whole else [])


def _cells(worst: WorstSample) -> list[tuple[str, Cell]]:
    shown = worst.shown
    if isinstance(shown, AnswerShown):
        parts = ("question", shown.question), (shown.opponent, shown.opposing)
        return [(n, _step_cell(s[0])) for n, s in (*parts, ("new answer", shown.steps)) if s]
    steps = paired_steps(shown)
    first = next((step for step in steps if step.first), steps[-1])
    start = None if first is steps[0] else steps[0].now or steps[0].before
    cells = [("start", Cell(start.image, [TextPart(start.text or "")]))] if start else []
    at = f"generation {first.generation}" if first.generation else "start"
    if first.before is not None:
        cell = Cell(first.before.image, first.before_text, "del")
        cells.append((f"{worst.result.judgement.reference}, {at}", cell))
    if first.now is not None:
        mark = "ins" if first.before is not None else ""
        cells.append((f"now, {at}", Cell(first.now.image, first.now_text, mark)))
    return cells


def _step_cell(step: StepShown) -> Cell:
    return Cell(step.image if not step.text else None, [TextPart(step.text)])


@dataclass
class Cause:
    """Cases that have one reason not to be judged, or failures of the same kind.

    text: the reason, as the first of them gives it.
    """

    text: str
    cases: list[tuple[str, str]] = field(default_factory=list)
    """Anchor and name of each."""

    @property
    def count(self) -> str:
        """How many cases there are, in words."""
        return counted(len(self.cases), "case")


def causes(results: Sequence[CaseResult]) -> list[Cause]:
    """Why cases were not judged, or have failed samples, the most frequent reason first.

    Reasons that differ in numbers alone are one.
    """
    by_text: dict[str, Cause] = {}
    for result in results:
        name = f"{result.suite} {result.part}, {result.label}"
        for text in _reasons(result):
            cause = by_text.setdefault(_NUMBERS.sub("#", text), Cause(text))
            cause.cases.append((case_anchor(result), name))
    return sorted(by_text.values(), key=lambda cause: -len(cause.cases))


def _reasons(result: CaseResult) -> Iterator[str]:
    if result.refused:
        yield result.refused
    elif result.verdict in _UNJUDGED and result.reasons and not result.accepted:
        yield "; ".join(result.reasons)
    elif not result.settled:
        yield from (f"failed samples: {kind}" for kind in result.failures)


def pictured_cases(results: Sequence[CaseResult]) -> frozenset[str]:
    """Names of the cases whose chains are shown, as `case_anchor` has them.

    All that are not settled, and of each suite the one that lost most of those that hold.
    """
    names = {case_anchor(result) for result in results if not result.settled}
    held: dict[str, list[CaseResult]] = {}
    for result in results:
        if result.settled and result.primary and _has_pictures(result):
            held.setdefault(result.suite, []).append(result)
    names |= {case_anchor(max(cases, key=_most_lost)) for cases in held.values()}
    return frozenset(names)


def _has_pictures(result: CaseResult) -> bool:
    chains, answers = chains_shown(result), result.shown.answers
    return any(chain.links for chain in chains) or any(answer.question for answer in answers)


def _most_lost(result: CaseResult) -> tuple[bool, float]:
    """Of cases that hold: those of which a sample lost come first, then by the mean drop."""
    return bool(result.shown.chains), -1.0 if result.judgement.difference is None else max(
        0.0, -_drop(result)
    )


def _drop(result: CaseResult) -> float:
    return in_tolerances(result.judgement.difference, result.tolerance)


# -- suites ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map. kind: its classes. shown: its text. title: of a pointer."""

    address: str
    kind: str
    shown: str
    title: str


@dataclass(frozen=True)
class HeatMap:
    """Numbers in shades. rows: name -> a cell for each column, or None."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[HeatCell | None]]]


def heat_map(results: Sequence[CaseResult]) -> HeatMap | None:
    """Changes of a suite's cases in tolerances; None where fewer than two parts were compared."""
    compared = [result for result in results if result.judgement.difference is not None]
    parts = list(dict.fromkeys(result.part for result in compared))
    if len(parts) < 2:
        return None
    metrics = list(dict.fromkeys(result.label for result in compared))
    cells = {(result.part, result.label): _heat_cell(result) for result in compared}
    return HeatMap(metrics, [(p, [cells.get((p, metric)) for metric in metrics]) for p in parts])


def _heat_cell(result: CaseResult) -> HeatCell:
    """A case in shades of 0 for no change to 4 for 8 tolerances and more."""
    difference = result.judgement.difference or 0.0
    shown = number(difference, signed=True)
    shade, worse = 0, "gained"
    if result.tolerance > 0:
        change = difference / result.tolerance
        shade = ceil(min(1.0, log1p(abs(change)) / log1p(8.0)) * _STRONGEST)
        worse = "worse" if change < 0 else "gained"
        title_change, shown = shown, f"{change:+.1f}"
    else:
        title_change = shown
    return HeatCell(
        f"#details-{case_anchor(result)}",
        f"{result.verdict} shade{shade} {worse}",
        shown,
        f"{result.part}, {result.label}: {word_of(result)} {title_change}",
    )


@dataclass(frozen=True)
class CurveView:
    """The curves of a case.

    result: of the gate.
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
        kind = "regressed" if result.verdict == Verdict.REGRESSED else ""
        plot = curve_plot(now, before, result.judgement.reference, _quantity(result), kind)
        known = before is not None
        views[key] = CurveView(result, _quantity(result), now.n, known, kind, plot)
    return list(views.values())


def _quantity(result: CaseResult) -> str:
    """What a curve is of, in words."""
    if result.shown.facts is not None:
        return "F1 of facts" if result.shown.facts.precision else "share of facts that are right"
    shares = result.measurement is not None and result.measurement.shares
    return "share that is right" if shares else "similarity to the start"


@dataclass(frozen=True)
class SuiteView:
    """A suite: its plots, its table and the details of its cases.

    anchor: of its heading.
    reach: end of the axis of its changes in tolerances; None where nothing was compared.
    noteworthy: cases whose details are shown by themselves, those that fail first; rest: others.
    """

    name: str
    anchor: str
    counts: str
    cases: Sequence[CaseView]
    reach: float | None
    heat: HeatMap | None
    curves: Sequence[CurveView]
    noteworthy: Sequence[CaseView]
    rest: Sequence[CaseView]
    rest_counts: str


def _suite(
    place: int, results: Sequence[CaseResult], pictured: Collection[str], opened: CaseResult | None
) -> SuiteView:
    changes = [change for result in results if (change := change_of_case(result)) is not None]
    reach = reach_of(changes)
    cases = [case_view(result, reach, pictured, opened) for result in results]
    noteworthy = [case for case in cases if case.noteworthy]
    rest = [case for case in cases if not case.noteworthy]
    return SuiteView(
        name=results[0].suite,
        anchor=f"suite-{place}",
        counts=counts_line(results),
        cases=cases,
        reach=reach if changes else None,
        heat=heat_map(results),
        curves=curve_views(results),
        noteworthy=sorted(noteworthy, key=lambda case: case.result.passes),
        rest=rest,
        rest_counts=counts_line([case.result for case in rest]),
    )


# -- the whole run ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunView:
    """The page of a run.

    title: its verdict in a sentence.
    forest: all gating cases, the worst first; few, many: how many of them are not folded away.
    cards: samples that lost most; others: more of them, which are only named.
    lines: counts, promises and what else is said of the whole run.
    choices: name, label and values of each filter of its cases.
    """

    facts: RunFacts
    title: str
    models: Models | None
    forest: Sequence[ForestRow]
    few: int
    many: int
    cards: Sequence[CardView]
    others: Sequence[CardView]
    causes: Sequence[Cause]
    suites: Sequence[SuiteView]
    lines: Sequence[str]
    choices: Sequence[tuple[str, str, Sequence[str]]]

    @property
    def command(self) -> str:
        """The command that started the run; empty where that is not known."""
        return "" if self.facts.provenance is None else self.facts.provenance.command


def run_view(facts: RunFacts, results: Sequence[CaseResult]) -> RunView:
    """All that the page of a run shows, but for its images."""
    pictured = pictured_cases(results)
    opened = worst_case(results) or next(filter(replaces_answers, results), None)
    samples = [card_view(sample) for sample in worst_samples(results)]
    cards = [sample for sample in samples if sample.cells][:_MOST_CARDS]
    suites: dict[str, list[CaseResult]] = {}
    for result in results:
        suites.setdefault(result.suite, []).append(result)
    return RunView(
        facts=facts,
        title=facts.headline or f"cepbench: {facts.verdict}",
        models=models_of(facts),
        forest=forest_rows(results),
        few=FEW_ROWS,
        many=MANY_ROWS,
        cards=cards,
        others=[sample for sample in samples if sample not in cards],
        causes=causes(results),
        suites=[
            _suite(place, own, pictured, opened) for place, own in enumerate(suites.values(), 1)
        ],
        lines=[
            *verdict_lines(results),
            *error_lines(results),
            effort_line(facts.efforts(results)),
            *judge_lines(results),
            *fact_lines(results),
            *improvement_lines(results),
        ],
        choices=[
            ("verdict", "verdict", _values(result.word.lower() for result in results)),
            ("suite", "suite", _values(result.suite for result in results)),
            ("metric", "metric", _values(result.label for result in results)),
        ],
    )


def _values(texts: Iterable[str]) -> list[str]:
    return sorted(set(texts))
