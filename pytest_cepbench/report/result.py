"""Result of one judged case: the record that every report reads.

It crosses from workers to the controller, so it is made of built-in types all the way down.
"""

from __future__ import annotations

import dataclasses

import msgspec

from pytest_cepbench.gate import CaseKey, Judgement, Measurement, Presentation, Verdict, present
from pytest_cepbench.gate.verdict import BY_THRESHOLD, REFUSED
from pytest_cepbench.metrics.facts import Facts
from pytest_cepbench.models.protocols import Usage


class LinkShown(msgspec.Struct, frozen=True):
    """One artifact of a chain.

    text: a text.
    image, sound: digest of one in the store.
    similarity: to the start, where it was measured.
    """

    text: str | None = None
    image: str | None = None
    similarity: float | None = None
    sound: str | None = None

    @property
    def file(self) -> str | None:
        """Digest of the image or the sound; None of a text."""
        return self.image or self.sound


class ChainShown(msgspec.Struct, frozen=True):
    """A chain worth looking at.

    sample: id of the sample.
    score, baseline: the sample's, in the case's metric, now and in the baseline.
    links: its artifacts from the start on, for the first few chains; else empty.
    failure: what stopped it, if anything did.
    remark: what else the metric says of it.
    baseline_links: the chain of the same sample by the baseline's model (or the anchor's); empty
    where `links` is, and where it is not in the store.
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
    low, high: ends of the 95 % confidence interval of each mean, by Student's t over independent
    samples.
    n: number of samples.
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
    """An answer worth looking at.

    sample: id of the sample.
    score, baseline: the sample's, in the case's metric, now and in the baseline.
    question: its texts and images, in order; empty where only the sample is named.
    steps: of the answer; empty where there is none.
    opponent: the other answer of its battle: `accepted answer`, `anchor's answer` or `reference
    answer`; empty where it fought none.
    opposing: the steps of that answer.
    verdicts: of the judge, in words, one for each order that was asked, or why none was asked.
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
    """The work of judging a case, or of a whole run.

    loads: models loaded.
    inputs: that models were given.
    hits: results from the store.
    seconds, model_seconds: of the whole, and inside the models.
    roles: number of models loaded, by role.
    usage: what servers counted.
    worker: which of the run's it was; empty in a single process and for a whole run.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0
    roles: dict[str, int] = {}
    usage: Usage = Usage()
    worker: str = ""


class HopShown(msgspec.Struct, frozen=True):
    """Cost of one hop of a chain.

    start: of its chains, `image` or `text`.
    role: `describer` or `generator`.
    generation: its place in the chain, from 1.
    cost: the drop that begins there, in the metric's unit; below 0 for a gain.
    """

    start: str
    role: str
    generation: int
    cost: float


class ModelShown(msgspec.Struct, frozen=True):
    """A model that a case was measured with.

    Two cases of a suite with the same `seat` and `spec` have the same `fingerprint` and `identity`;
    otherwise the run is incomplete.

    seat: the role it plays, or the name of a further encoder.
    spec: what the user or the suite typed.
    fingerprint: digest of all that determines its answers except its parameters.
    identity: what it is in one line, its parameters included.
    """

    seat: str
    spec: str
    fingerprint: str
    identity: str


class BaselineModel(msgspec.Struct, frozen=True):
    """The model whose measurement is the accepted baseline of a case.

    role: that it plays; `replay` for recorded chains.
    spec: what was typed when it was measured.
    identity: what it is in one line, its parameters included.
    fingerprint: as of a Model, those of several roles joined by ` + `; empty where the baseline's
    file names none.
    reason: why it was accepted (`cepbench accept --reason`); empty where none was given.
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
    """

    name: str
    look: int
    expected: int
    alpha: float
    level: float | None = None
    anchor_level: float | None = None
    baseline: int | None = None


_UNSEEN = "name a judge, or models, that see it: more samples of the same show no more"


class Shown(msgspec.Struct, frozen=True):
    """What reports show of a case beside its numbers.

    notes: what a reader should know of the measurement, a sentence each.
    warnings: what makes its number mean less than it seems to; shown in every report.
    curve: the mean at each iteration or generation.
    judge: what is known of the judge whose verdicts the scores come from, by its
    [card](judges.md#cepbench-agree-judges); empty where none judged.
    models: those that it was measured with; empty where it was not measured.
    baseline_model: whose numbers are the baseline; None without a baseline.
    attribution: at which hop of the chain a regressed case lost its score, in words; may be empty.
    hops: the same in numbers.
    chains: the samples that lost most, at most five.
    answers: in suites of interleaved answers, the samples that lost most, at most five; for battles
    that were accepted, the samples whose accepted answers were replaced; then those named with
    `--cep-show`.
    median: the sample with the median difference; None where nothing was compared.
    requested: the samples named with `--cep-show` that no other field shows with their artifacts;
    in suites of interleaved answers they stand among `answers`.
    reference_chains: why the chains of the reference are not all known, and the command that makes
    them; empty where they are.
    curve_now: mean similarity by generation, with its confidence interval; None where no chain has
    a score of its own.
    curve_reference: the same of the baseline or anchor; None where the store lacks one of its
    chains.
    differences: paired difference to the reference by sample, turned so that positive is better;
    empty where nothing was compared, and for distances between sets.
    opponents: digest of the accepted answers that the run's own battled in `differences`; empty
    where none did.
    facts: what became of the [facts](metrics.md#facts-facts) of its samples; None where the metric
    is not about facts.
    """

    notes: list[str] = []
    warnings: list[str] = []
    curve: list[float] = []
    judge: str = ""
    models: list[ModelShown] = []
    baseline_model: BaselineModel | None = None
    attribution: str = ""
    hops: list[HopShown] = []
    chains: list[ChainShown] = []
    answers: list[AnswerShown] = []
    median: ChainShown | None = None
    requested: list[ChainShown] = []
    reference_chains: str = ""
    curve_now: CurveShown | None = None
    curve_reference: CurveShown | None = None
    differences: dict[str, float] = {}
    opponents: str = ""
    facts: Facts | None = None


class CaseResult(msgspec.Struct, frozen=True):
    """A judged case: what was measured, what came of comparing it, and what is shown of both.

    nodeid: pytest's id of the test.
    suite: name of the suite.
    part: category, group, or `overall`.
    metric: name of the metric in the suite.
    label: the metric as shown.
    tolerance: tolerated drop, in the metric's unit, at least 0.
    judgement: the comparison with the baseline, or why there is none.
    measurement: what was measured; None where nothing could be, and for a suite as a whole.
    shown: what reports show beside the numbers.
    of: how many cases its suite has, selected or not.
    gate: the rule by which it was judged: `regression`, `noninferiority`, `threshold`.
    anchor_tolerance: tolerated drop since the anchor.
    alpha: its share in the error of the run, in each direction; None where the rule has no use for
    it.
    primary: whether it can fail the run; one that cannot is shown as informational.
    strict: whether it fails where nothing can be told.
    origins: setting (`gate`, `tolerance`, `anchor_tolerance`, `alpha`) to its origin: an option,
    the test, or a table of the suite. Defaults are left out.
    looks: number of samples at each look at the data.
    partial: whether the last look left samples unused.
    accepted: whether the measurement is to become the baseline.
    refused: why it may not become the baseline, where that was asked for; empty where it may. Such
    a case fails, whatever its verdict.
    series: its place in a [series of gates](the-gate.md#a-series-of-gates); None where the run is
    in none.
    effort: the work of judging it.
    damage: entries that the store found damaged meanwhile and computed again.
    """

    nodeid: str
    suite: str
    part: str
    metric: str
    label: str
    tolerance: float
    judgement: Judgement
    measurement: Measurement | None = None
    shown: Shown = Shown()
    of: int = 0
    gate: str = "threshold"
    anchor_tolerance: float = 0.0
    alpha: float | None = None
    primary: bool = True
    strict: bool = False
    origins: dict[str, str] = {}
    looks: list[int] = []
    partial: bool = False
    accepted: bool = False
    refused: str = ""
    series: SeriesShown | None = None
    effort: UsageTotals = UsageTotals()
    damage: list[str] = []

    @property
    def key(self) -> CaseKey:
        """Which case it is."""
        return CaseKey(self.suite, self.part, self.metric)

    @property
    def is_pooled(self) -> bool:
        """Whether it is the verdict of a whole suite, which measures nothing: it sums up cases."""
        # Pages of other things than runs, such as that of the history, do without the suites.
        from pytest_cepbench.measures.cases import POOLED

        return (self.part, self.metric) == POOLED

    @property
    def verdict(self) -> Verdict:
        """Of the comparison."""
        return self.judgement.verdict

    @property
    def reasons(self) -> list[str]:
        """Why it does not pass, a sentence each."""
        return list(self.judgement.reasons)

    @property
    def notes(self) -> list[str]:
        """What else a reader should know of the number, a sentence each."""
        return [*self.shown.notes, *self.judgement.statements]

    @property
    def warnings(self) -> list[str]:
        """What makes the number mean less than it seems to, shown in every report."""
        return [*self.shown.warnings, *self.judgement.warnings]

    @property
    def value(self) -> float | None:
        """What was measured."""
        return None if self.measurement is None else self.measurement.value

    @property
    def n(self) -> int:
        """How many samples were measured."""
        return 0 if self.measurement is None else self.measurement.n

    @property
    def higher_is_better(self) -> bool:
        """The direction of its metric; True where nothing was measured."""
        return self.measurement is None or self.measurement.higher_is_better

    @property
    def floor(self) -> float | None:
        """What chance alone gives, where that is known."""
        return None if self.measurement is None else self.measurement.floor

    @property
    def failures(self) -> dict[str, int]:
        """Failed chains or answers by kind."""
        return {} if self.measurement is None else self.measurement.failures

    @property
    def model(self) -> dict[str, str]:
        """The model under test; empty where nothing was measured."""
        return {} if self.measurement is None else self.measurement.model

    @property
    def identity(self) -> dict[str, str]:
        """What a baseline must share to be compared; empty where nothing was measured."""
        return {} if self.measurement is None else self.measurement.identity

    @property
    def numbers(self) -> dict[str, float | None]:
        """Its value and what came of comparing it, by the names that tables and trackers use."""
        judgement, anchor = self.judgement, self.judgement.since_anchor
        return {
            "value": self.value,
            "baseline": judgement.baseline_value,
            "difference": judgement.difference,
            "p": judgement.p,
            "low": judgement.low,
            "high": judgement.high,
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "n": self.n,
            "units": judgement.units,
            "visible": judgement.visible,
            "floor": self.floor,
            "anchor": None if anchor is None else anchor.baseline_value,
        }

    @property
    def presentation(self) -> Presentation:
        """Presentation of its verdict."""
        if self.refused:
            return REFUSED
        shown = present(self.verdict, primary=self.primary, strict=self.strict)
        if self.verdict is Verdict.REGRESSED and self.gate == "threshold":
            return dataclasses.replace(shown, meaning=BY_THRESHOLD)
        if not self.unseen:
            return shown
        return dataclasses.replace(shown, meaning=self.unseen, next_step=_UNSEEN)

    @property
    def unseen(self) -> str:
        """Why an inconclusive case could see no drop, whatever its samples; empty where it could.

        Too few samples are no reason of their own.
        """
        undecided = self.verdict is Verdict.INCONCLUSIVE and self.judgement.difference is not None
        return self.reasons[0] if undecided and self.reasons else ""

    @property
    def passes(self) -> bool:
        """True where it lets the run pass."""
        return self.accepted or self.presentation.passes

    @property
    def settled(self) -> bool:
        """True where there is nothing to look at: it holds, or becomes the baseline."""
        return self.accepted or self.verdict is Verdict.HELD

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
