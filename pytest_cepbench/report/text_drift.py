"""What drifts in the texts of a suite's chains, as tables and as the coordinates of a flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.report.drift_record import (
    OTHER_WORDS,
    AttractorShown,
    TextDriftShown,
    TextStepShown,
    WordFlowShown,
)
from pytest_cepbench.report.result import CaseResult

FLOW_WIDTH = 420
"""Width of a flow in its own units: it is as wide as there is room."""

_TALL = 230.0  # height of all words of a side together

_SLOT = 15.0  # least height of a word's place, for its label

_GAP = 4.0

_LEFT, _RIGHT = 124.0, 296.0  # edges of the bands; words stand outside

_BAR = 6.0  # width of a word's own bar

_TOP = 24.0  # for the heads of the two columns

FlowKind = Literal["kept", "changed", "lost", "gained"]

NEW, LOST = "(new)", "(lost)"
"""The places of words that come from nothing, and go to nothing."""


@dataclass(frozen=True)
class FlowWord:
    """A word on one side of a flow. y, height: of its bar. count: of its occurrences."""

    word: str
    count: int
    y: float
    height: float

    @property
    def middle(self) -> float:
        """Where its label stands."""
        return round(self.y + self.height / 2 + 4, 1)


@dataclass(frozen=True)
class FlowBand:
    """What became of a word. path: of its outline. label: in words."""

    kind: FlowKind
    path: str
    label: str


@dataclass(frozen=True)
class WordFlow:
    """The flow of words from the first to the last text.

    before, after: words of the two sides.
    bands: between them, those that are drawn last being the ones that changed.
    height: of the picture.
    omitted: words without a name that stayed, and are not drawn.
    """

    before: tuple[FlowWord, ...]
    after: tuple[FlowWord, ...]
    bands: tuple[FlowBand, ...]
    height: float
    omitted: int


@dataclass(frozen=True)
class TextRow:
    """A line of the table: a step of this run's, or of the reference's.

    who: "now", or the reference's name.
    """

    step: TextStepShown
    who: str

    @property
    def words(self) -> int:
        """Words of the texts before."""
        return self.step.kept + self.step.changed + self.step.lost

    def share(self, count: int) -> str:
        """A count as a share of the words before; "-" where there are none."""
        return f"{count / self.words:.1%}" if self.words else "-"

    @property
    def length(self) -> str:
        """Mean number of words; "-" of no text."""
        return f"{self.step.words:.1f}" if self.step.texts else "-"

    @property
    def repeated(self) -> str:
        """Mean share of repeated n-grams; "-" of no text."""
        return f"{self.step.repeated:.1%}" if self.step.texts else "-"

    @property
    def refusals(self) -> str:
        """Texts that begin as refusals do; "-" of no text."""
        return str(self.step.refusals) if self.step.texts else "-"

    @property
    def scripts(self) -> str:
        """Scripts with their shares."""
        return _shares(self.step.scripts)

    @property
    def languages(self) -> str:
        """Languages with their shares; "-" where none was identified."""
        return _shares(self.step.languages)


def _shares(named: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in named.items()) or "-"


@dataclass(frozen=True)
class KindStep:
    """What became of the words of a kind at a step.

    steps: generations of the two texts.
    cells: shares of the words before that were kept, changed and lost, and new ones beside them;
    each of this run and of the reference, which is empty where it is not known.
    """

    steps: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KindRow:
    """A kind of fact, and what became of its words step by step."""

    kind: str
    steps: tuple[KindStep, ...]


@dataclass(frozen=True)
class TextDrift:
    """What drifts in the texts of a suite's chains, or of one case where its whole was not run.

    result: the case that has it.
    texts: this run's. reference: the baseline's or anchor's; None where it is not known.
    """

    result: CaseResult
    texts: TextDriftShown
    reference: TextDriftShown | None

    @property
    def rows(self) -> list[tuple[TextRow, ...]]:
        """The steps in order, each of this run's with the reference's below it."""
        return [
            (TextRow(step, "now"), *([] if before is None else [TextRow(before, who)]))
            for step, before in self._steps()
            for who in [self.result.reference]
        ]

    def _steps(self) -> list[tuple[TextStepShown, TextStepShown | None]]:
        known = [] if self.reference is None else self.reference.steps
        by_generation = {step.generation: step for step in known}
        return [(step, by_generation.get(step.generation)) for step in self.texts.steps]

    @property
    def kinds(self) -> list[KindRow]:
        """The kinds of fact that the texts tell, with what each step does to their words."""
        steps = [(step, before) for step, before in self._steps() if step.since is not None]
        names = dict.fromkeys(kind for step, _ in steps for kind in step.kinds)
        return [
            KindRow(
                kind,
                tuple(
                    KindStep(
                        f"{step.since or 'start'} \N{RIGHTWARDS ARROW} {step.generation}",
                        tuple(zip(_changes(step, kind), _changes(before, kind), strict=True)),
                    )
                    for step, before in steps
                ),
            )
            for kind in names
        ]

    @property
    def languages(self) -> bool:
        """Whether the language of a text is known."""
        return any(step.languages for step in self.texts.steps)

    @property
    def flow(self) -> WordFlow | None:
        """The picture; None where no chain has two texts."""
        return word_flow(self.texts.flows) if self.texts.flows else None


def text_drifts(results: Sequence[CaseResult]) -> list[TextDrift]:
    """What drifts in the texts of a suite, once for each start of its chains.

    results: of one suite. The case with most samples tells it.
    """
    found: dict[str, TextDrift] = {}
    for result in sorted(results, key=lambda result: -result.n):
        references = {texts.start: texts for texts in result.texts_reference}
        for texts in result.texts:
            if texts.start not in found and any(step.texts for step in texts.steps):
                found[texts.start] = TextDrift(result, texts, references.get(texts.start))
    return [found[start] for start in sorted(found)]


def attractor_cases(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The cases of a suite that show attractors, those of equal ones once."""
    shown: list[CaseResult] = []
    for result in results:
        if result.attractors and all(
            _ends(result.attractors) != _ends(other.attractors) for other in shown
        ):
            shown.append(result)
    return shown


def _ends(attractors: Sequence[AttractorShown]) -> list[tuple[str, ...]]:
    return [tuple(end.sample for end in attractor.examples) for attractor in attractors]


def _changes(step: TextStepShown | None, kind: str) -> tuple[str, ...]:
    """Shares of the words before: kept, changed, lost, new; empty where there is no step."""
    if step is None:
        return ("",) * 4
    kept, changed, lost, gained = step.kinds.get(kind, [0, 0, 0, 0])
    words = kept + changed + lost
    return tuple(
        f"{count / words:.1%}" if words else "-" for count in (kept, changed, lost, gained)
    )


# -- the flow --------------------------------------------------------------------------------------


def word_flow(flows: Sequence[WordFlowShown]) -> WordFlow:
    """Words as bars on two sides, with bands between them as wide as there are occurrences.

    All words without a name that stayed are left out, since they would leave no room for others.
    flows: at least one.
    """
    drawn = [flow for flow in flows if (flow.before, flow.after) != (OTHER_WORDS, OTHER_WORDS)]
    omitted = sum(flow.count for flow in flows) - sum(flow.count for flow in drawn)
    if not drawn:
        drawn, omitted = list(flows), 0
    left, right = _totals(drawn, before=True), _totals(drawn, before=False)
    scale = _TALL / max(sum(left.values()), sum(right.values()))
    before, after = _column(left, scale), _column(right, scale)
    height = max(word.y + max(word.height, _SLOT) for word in (*before, *after)) + 8
    return WordFlow(before, after, tuple(_bands(drawn, before, after, scale)), height, omitted)


def _totals(flows: Sequence[WordFlowShown], *, before: bool) -> dict[str, int]:
    """Occurrences by word, named ones first, then the others, then nothing."""
    totals: dict[str, int] = {}
    for flow in flows:
        word = _place(flow, before=before)
        totals[word] = totals.get(word, 0) + flow.count
    both = _sizes(flows)
    last = (NEW, LOST)
    order = sorted(
        totals, key=lambda word: (word in last, word == OTHER_WORDS, -both.get(word, 0), word)
    )
    return {word: totals[word] for word in order}


def _sizes(flows: Sequence[WordFlowShown]) -> dict[str, int]:
    """Occurrences of a word on both sides, which order it alike on both."""
    sizes: dict[str, int] = {}
    for flow in flows:
        for word in (flow.before, flow.after):
            sizes[word] = sizes.get(word, 0) + flow.count
    return sizes


def _place(flow: WordFlowShown, *, before: bool) -> str:
    return (flow.before or NEW) if before else (flow.after or LOST)


def _column(totals: dict[str, int], scale: float) -> tuple[FlowWord, ...]:
    words, y = [], _TOP
    for word, count in totals.items():
        height = max(1.0, count * scale)
        slot = max(_SLOT, height)
        words.append(FlowWord(word, count, round(y + (slot - height) / 2, 1), round(height, 1)))
        y += slot + _GAP
    return tuple(words)


def _bands(
    flows: Sequence[WordFlowShown],
    before: Sequence[FlowWord],
    after: Sequence[FlowWord],
    scale: float,
) -> Iterator[FlowBand]:
    """Bands in the order of the words, so that those of a word do not cross at its bar."""
    from_rank = {word.word: rank for rank, word in enumerate(before)}
    to_rank = {word.word: rank for rank, word in enumerate(after)}
    leaves = {word.word: word.y for word in before}
    enters = {word.word: word.y for word in after}
    ends: dict[WordFlowShown, float] = {}
    ordered = sorted(
        flows,
        key=lambda flow: (
            from_rank[_place(flow, before=True)],
            to_rank[_place(flow, before=False)],
        ),
    )
    for flow in sorted(ordered, key=lambda flow: to_rank[_place(flow, before=False)]):
        word = _place(flow, before=False)
        ends[flow] = enters[word]
        enters[word] += flow.count * scale
    bands = []
    for flow in ordered:
        word = _place(flow, before=True)
        top, bottom, high = leaves[word], ends[flow], flow.count * scale
        leaves[word] += high
        bands.append(FlowBand(kind_of_flow(flow), _outline(top, bottom, high), label_of(flow)))
    yield from sorted(bands, key=lambda band: band.kind != "kept")


def kind_of_flow(flow: WordFlowShown) -> FlowKind:
    """Whether the word stayed."""
    if not flow.before:
        return "gained"
    if not flow.after:
        return "lost"
    return "kept" if flow.before == flow.after else "changed"


def label_of(flow: WordFlowShown) -> str:
    """What became of a word, in words."""
    kind = kind_of_flow(flow)
    if kind == "changed":
        return f"{flow.before} became {flow.after}: {flow.count}"
    return f"{flow.before or flow.after} {kind}: {flow.count}"


def _outline(top: float, bottom: float, high: float) -> str:
    left, right, middle = _LEFT + _BAR, _RIGHT - _BAR, (_LEFT + _RIGHT) / 2

    def n(value: float) -> str:
        return f"{value:.1f}".rstrip("0").rstrip(".")

    return (
        f"M{n(left)} {n(top)}C{n(middle)} {n(top)} {n(middle)} {n(bottom)} {n(right)} {n(bottom)}"
        f"V{n(bottom + high)}C{n(middle)} {n(bottom + high)} {n(middle)} {n(top + high)} "
        f"{n(left)} {n(top + high)}Z"
    )
