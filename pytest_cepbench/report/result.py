"""Result of one judged case: the record that every report reads.

It crosses from workers to the controller, so it is made of built-in types all the way down.
"""

from __future__ import annotations

import dataclasses

import msgspec

from pytest_cepbench.gate import Baseline, Presentation, Verdict, present
from pytest_cepbench.gate.verdict import BY_THRESHOLD, REFUSED
from pytest_cepbench.models.protocols import Usage


class LinkShown(msgspec.Struct, frozen=True):
    """One artifact of a chain: its text, or the digest of its image in the store.

    similarity: to the start, where it was measured.
    """

    text: str | None = None
    image: str | None = None
    similarity: float | None = None


class ChainShown(msgspec.Struct, frozen=True):
    """A chain worth looking at: one of the samples that lost most.

    score, baseline: the sample's, in the case's metric.
    failure: what stopped it, if anything did.
    remark: what else the metric says of it.
    baseline_links: the chain of the same sample by the baseline's model (or the anchor's); empty
    where it is not shown or not in the store.
    baseline_failure: what stopped that chain.
    first_difference: the first generation whose artifacts differ, 0 for the start; None where none
    does, or the other chain is not known.
    """

    sample: str
    score: float
    baseline: float | None
    links: list[LinkShown]
    failure: str | None = None
    remark: str = ""
    baseline_links: list[LinkShown] = []
    baseline_failure: str | None = None
    first_difference: int | None = None


class CurveShown(msgspec.Struct, frozen=True):
    """Mean similarity of chains to their starts (or share that is right), by generation.

    generations: that were compared, rising.
    mean: at each of them.
    low, high: 95 % confidence interval of each mean.
    n: samples.
    """

    generations: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    n: int


class StepShown(msgspec.Struct, frozen=True):
    """One step of an answer, or one text or image of a question.

    text: empty where it has none.
    image: digest of its image in the store.
    """

    text: str = ""
    image: str | None = None


class AnswerShown(msgspec.Struct, frozen=True):
    """An answer worth looking at: one of those that lost most, or that changed.

    score, baseline: the sample's, in the case's metric.
    question: its texts and images, in order; empty where only the sample is named.
    steps: of the answer; empty where there is none.
    opponent: the other answer of its battle in words; empty where it fought none.
    opposing: the steps of that answer.
    verdicts: of the judge, in words, one for each order that was asked.
    failure: why there is no answer.
    remark: what else a reader should know of it.
    """

    sample: str
    score: float
    baseline: float | None
    question: list[StepShown] = []
    steps: list[StepShown] = []
    opponent: str = ""
    opposing: list[StepShown] = []
    verdicts: list[str] = []
    failure: str | None = None
    remark: str = ""


class UsageTotals(msgspec.Struct, frozen=True):
    """The work of judging a case.

    loads: of models.
    inputs: that models were given.
    hits: results from the store.
    seconds, model_seconds: of the whole, and inside the models.
    roles: models loaded, by role.
    usage: what servers counted.
    worker: which of the run's it was; empty in a single process.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0
    roles: dict[str, int] = {}
    usage: Usage = Usage()
    worker: str = ""


class AnchorShown(msgspec.Struct, frozen=True):
    """The comparison with the anchor. Fields as in `CaseResult`; value: the anchor's."""

    value: float | None
    difference: float | None
    low: float | None
    high: float | None
    tolerance: float
    verdict: str
    p: float | None = None
    method: str = ""


class HopShown(msgspec.Struct, frozen=True):
    """Cost of one hop of a chain, or of one part of a pipeline that makes answers.

    start: of the chain, or "question".
    generation: 0 for a part of a pipeline.
    cost: the drop that begins there.
    """

    start: str
    role: str
    generation: int
    cost: float


class ModelShown(msgspec.Struct, frozen=True):
    """A model that a case was measured with.

    seat: the role it plays, or the name of a further encoder.
    spec: what the user or the suite typed.
    fingerprint: all of it.
    identity: what it is in one line, its parameters included.
    """

    seat: str
    spec: str
    fingerprint: str
    identity: str


class BaselineModel(msgspec.Struct, frozen=True):
    """The model whose measurement is the accepted baseline of a case.

    role: that it plays.
    spec: what was typed when it was measured.
    identity: what it is in one line, its parameters included.
    fingerprint: all of it; empty where the baseline's file does not name one.
    reason: why it was accepted; empty where none was given.
    """

    role: str
    spec: str
    identity: str = ""
    fingerprint: str = ""
    reason: str = ""


class SeriesShown(msgspec.Struct, frozen=True):
    """The place of a case in a series of gates.

    name: of the series.
    look: number of the checkpoint in it.
    expected: checkpoints over which half of the error is spent.
    alpha: part of the case's that this checkpoint has.
    level: error of the upper bound against the baseline; None where none was made.
    anchor_level: the same against the anchor.
    baseline: number of the checkpoint that is the baseline; 0 for another one from before the
    series, None for the one that it began with.
    delays: checkpoints until a drop of 1, 2 and 4 tolerances is found with 80 % power, the next one
    being 1; None for more than 20. Empty where the spread is not known.
    decline: the same for a decline of half a tolerance at each checkpoint.
    """

    name: str
    look: int
    expected: int
    alpha: float
    level: float | None = None
    anchor_level: float | None = None
    baseline: int | None = None
    delays: list[int | None] = []
    decline: int | None = None


class RoleLossShown(msgspec.Struct, frozen=True):
    """What the steps of one role do to facts; fields as in `metrics.facts.RoleLoss`."""

    role: str
    steps: int
    right: float
    lost: float
    wrong: float
    regained: float
    claims: float | None = None
    untrue: float | None = None
    invented: float | None = None
    changed: float | None = None


class FactTableShown(msgspec.Struct, frozen=True):
    """How many facts a text and the picture beside it have right: a 2 x 2 table.

    text, picture: the generations of the two.
    both, read, drawn, neither: facts that are right in both, in the text alone (drawn wrong), in
    the picture alone (read wrong), in none.
    """

    text: int
    picture: int
    both: float
    read: float
    drawn: float
    neither: float


class FactKindShown(msgspec.Struct, frozen=True):
    """What became of the facts of one kind, or of all of them.

    kind: empty for all kinds together.
    facts: how many there are.
    curve: share that is right at each generation; None where none was answered.
    last: the last generation that was checked.
    half_life: generations until half of them are gone; None for more than `last`.
    low, high: ends of its 95 % interval; None for more than `last`.
    losses: what each role loses.
    tables: one for each pair of a text and a picture.
    """

    kind: str
    facts: int
    curve: list[float | None] = []
    last: int = 0
    half_life: float | None = None
    low: float | None = None
    high: float | None = None
    losses: list[RoleLossShown] = []
    tables: list[FactTableShown] = []


class FactsShown(msgspec.Struct, frozen=True):
    """What became of the facts of a case's samples along their chains.

    generations: that were checked.
    precision: whether what is claimed beyond the facts counts.
    unanswered: answers that checkers did not give.
    every: the facts of all kinds.
    kinds: of each kind.
    """

    generations: list[int]
    precision: bool
    unanswered: int
    every: FactKindShown
    kinds: list[FactKindShown]


_UNSEEN = "name a judge, or models, that see it: more samples of the same show no more"


class CaseResult(msgspec.Struct, frozen=True):
    """A judged case. Numbers are None where they could not be measured or compared.

    of: how many cases its suite has.
    gate, tolerance, alpha: how it was judged; alpha is this case's share, None where the rule has
    no use for it.
    level: the part of alpha that each bound was made at, smaller after several looks and beside an
    anchor.
    primary: whether it can fail the run.
    strict: whether it fails where nothing can be told.
    origins: setting -> where it came from.
    difference: to the baseline, turned so that positive is better.
    p: of the sign-flip test, by which a drop is told from noise; None where it decides nothing.
    low, high: one-sided bounds of the difference, each at that level; None where none excludes
    anything.
    method: of the bounds, or why there are none: "same model", "same answers".
    units: independent samples.
    visible: the smallest drop that so many fail in 80 % of runs.
    needed: samples that would decide an inconclusive case; None where that is not known.
    looks: samples at each look.
    partial: whether more samples were there.
    accepted: whether the measurement is to become the baseline.
    failures: failed chains or answers by kind.
    curve: the mean at each iteration or generation.
    notes: what else a reader should know of the number.
    anchor: the same comparison with the anchor.
    attribution, hops: at which hop or by which part it lost, in words and in numbers.
    chains, answers: samples that lost most, or whose accepted answers were replaced.
    measured: all of the measurement, as `cepbench accept` takes it.
    damage: entries that the store found damaged and computed again.
    floor: what chance alone gives.
    baseline_floor: the baseline's, where its file has it.
    warnings: what makes the number mean less than it seems to, shown in every report.
    refused: why it may not become the baseline, where that was asked for.
    models: those that it was measured with.
    judge: what is known of the judge whose verdicts its scores come from; empty where none judged.
    series: its place in a series of gates; None where the run is in none.
    baseline_model: whose numbers are the baseline; None without a baseline.
    median: the sample with the median difference, as a chain; None where nothing was compared.
    requested: the samples that `--cep-show` names and no other field shows, as chains; requested
    answers stand among `answers`.
    reference: whose chains, scores and curve stand beside those of this run: baseline or anchor.
    reference_chains: why not all of those chains are known, and the command that makes them.
    curve_now, curve_reference: mean similarity by generation with its confidence interval, of this
    run and of the reference; None where a score is no chain's, or chains are not known.
    differences: paired difference to the reference by sample, turned so that positive is better.
    opponents: digest of the answers that those of this run battled in `differences`; empty where
    none did.
    facts: what became of the facts of its samples; None where the metric is not about facts.
    """

    nodeid: str
    suite: str
    part: str
    metric: str
    label: str
    verdict: str
    tolerance: float
    of: int = 0
    gate: str = "threshold"
    alpha: float | None = None
    level: float | None = None
    primary: bool = True
    strict: bool = False
    origins: dict[str, str] = {}
    higher_is_better: bool = True
    value: float | None = None
    baseline: float | None = None
    difference: float | None = None
    p: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    units: int = 0
    visible: float | None = None
    needed: int | None = None
    looks: list[int] = []
    partial: bool = False
    n: int = 0
    accepted: bool = False
    failures: dict[str, int] = {}
    curve: list[float] = []
    notes: list[str] = []
    reasons: list[str] = []
    model: dict[str, str] = {}
    identity: dict[str, str] = {}
    anchor: AnchorShown | None = None
    attribution: str = ""
    hops: list[HopShown] = []
    chains: list[ChainShown] = []
    measured: Baseline | None = None
    effort: UsageTotals = UsageTotals()
    damage: list[str] = []
    floor: float | None = None
    baseline_floor: float | None = None
    warnings: list[str] = []
    refused: str = ""
    models: list[ModelShown] = []
    answers: list[AnswerShown] = []
    judge: str = ""
    series: SeriesShown | None = None
    baseline_model: BaselineModel | None = None
    median: ChainShown | None = None
    reference: str = "baseline"
    reference_chains: str = ""
    curve_now: CurveShown | None = None
    curve_reference: CurveShown | None = None
    differences: dict[str, float] = {}
    requested: list[ChainShown] = []
    opponents: str = ""
    facts: FactsShown | None = None

    @property
    def presentation(self) -> Presentation:
        """Presentation of its verdict."""
        if self.refused:
            return REFUSED
        shown = present(Verdict(self.verdict), primary=self.primary, strict=self.strict)
        if self.verdict == Verdict.REGRESSED and self.gate == "threshold":
            return dataclasses.replace(shown, meaning=BY_THRESHOLD)
        if not self.unseen:
            return shown
        return dataclasses.replace(shown, meaning=self.unseen, next_step=_UNSEEN)

    @property
    def unseen(self) -> str:
        """Why an inconclusive case could see no drop, whatever its samples; empty where it could.

        Too few samples are no reason of their own.
        """
        undecided = self.verdict == Verdict.INCONCLUSIVE and self.difference is not None
        return self.reasons[0] if undecided and self.reasons else ""

    @property
    def passes(self) -> bool:
        """True where it lets the run pass."""
        return self.accepted or self.presentation.passes

    @property
    def settled(self) -> bool:
        """True where there is nothing to look at: it holds, or becomes the baseline."""
        return self.accepted or self.verdict == Verdict.HELD

    @property
    def word(self) -> str:
        """Its verdict in one word, as shown."""
        if self.refused:
            return "REFUSED"
        return "ACCEPTED" if self.accepted else self.verdict.upper()

    @property
    def gates(self) -> bool:
        """True where it was compared in a way that could have failed the run."""
        return self.primary and not self.accepted


def chains_shown(result: CaseResult) -> list[ChainShown]:
    """All chains of a case that reports have, each sample once, with its artifacts if possible."""
    chains = [*result.requested, *result.chains]
    if result.median is not None:
        chains.append(result.median)
    by_sample: dict[str, ChainShown] = {}
    for chain in chains:
        if chain.links or chain.sample not in by_sample:
            by_sample[chain.sample] = chain
    return list(by_sample.values())
