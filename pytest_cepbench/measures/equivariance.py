"""equivariance: whether edits of the starts appear in what models make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from pytest_cepbench.chains import Chain, ChainPlan, Modality
from pytest_cepbench.datasets.edits import UNSEEN_EDITS
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, unknown_name
from pytest_cepbench.measures.base import (
    ENCODER,
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    by_category,
    everyone,
    grower,
    outcome_of_chain,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.edited_facts import (
    VECTOR_EDITS,
    Comparison,
    EditPairs,
    FactComparison,
    PairScores,
    ScoreName,
    VectorComparison,
    pair_up,
)


class EquivarianceTable(MetricTable, frozen=True, kw_only=True):
    """equivariance: whether edits of the starts ([data] edits) appear in the answers.

    start: which chains; "image" measures the describer, "text" the generator, at generation 1.
    at: the generation of the answers, 1 when left out.
    compare: "facts" of generated scenes, or "vectors" of an encoder.
    score: of facts, the product of the share that followed the edit and the share that kept still
        ("both"), or one of the two.
    encoder: the role whose vectors are compared.
    edits: those that are cases; all of the data set's that the chains can show when left out.
    """

    start: Modality | None = None
    at: int = 1
    compare: Literal["facts", "vectors"] = "facts"
    score: ScoreName = "both"
    encoder: str = ENCODER
    edits: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class EquivarianceMeasure(Measure):
    """One score per edited sample, by edit; the whole is the mean of the edits."""

    plan: ChainPlan
    at: int
    comparison: Comparison

    @property
    def label(self) -> str:
        """The metric, and whose answers it is of."""
        return f"equivariance [{grower(self.plan, self.at)}]"

    @property
    def identity(self) -> str:
        """Formula, generation and edits."""
        compared = self.comparison.identity
        return f"equivariance/1 {compared}, at {self.at}, edits {' '.join(self.own_parts)}"

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The answers, to starts that were edited and to those that were not."""
        return (RequiredFeatures(self.plan, (self.at,), self.comparison.reader),)

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The answers, and their vectors where these are compared."""
        chain_data.require_recorded(self.plan.start, (self.at,))
        self.comparison.read(self.plan, samples, chain_data)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """A score per edited sample. Raises MeasurementError where no pair is left."""
        samples = everyone(by_category(case, chain_data))
        paired = self._pairs(case, samples, chain_data)
        able = {edit: own for edit, own in paired.items() if own.pairs}
        if not able:
            raise MeasurementError(
                f"{case.key}: {len(samples)} samples hold no pair of a start and the same start "
                "edited that differ: play more samples of each category"
            )
        scored = {
            edit: self.comparison.score(self.plan, edit, own.pairs, chain_data)
            for edit, own in able.items()
        }
        chains = {
            chain.sample.id: chain
            for own in able.values()
            for pair in own.pairs
            for chain in (pair.before, pair.after)
        }
        failures = {name: f for scores in scored.values() for name, f in scores.failures.items()}
        for own in able.values():  # a pair has a score of both or none
            failures |= {
                p.name: failures[b] for p in own.pairs if (b := p.before.sample.id) in failures
            }
        floors = [scores.floor for scores in scored.values() if scores.floor is not None]
        return Measured(
            scores={edit: scores.values for edit, scores in scored.items()},
            samples=[chains[name].sample for name in sorted(chains)],
            outcomes=[
                CaseScores(name, failures[name], self.comparison.reader)
                if name in failures
                else self._outcome(chains[name])
                for name in sorted(chains)
            ],
            notes=tuple(_notes(paired, scored)),
            floor=fsum(floors) / len(floors) if len(floors) == len(scored) else None,
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain from the edited start, and what its answer was compared with."""
        (sample,) = chain_data.named(sample_id)
        origin = [] if sample.edit is None else chain_data.named(sample.edit.of)
        chain = chain_data.chains(self.plan.start, [sample])[sample_id]
        for edit, own in self._pairs(case, [*origin, sample], chain_data).items():
            if own.pairs:
                scores = self.comparison.score(self.plan, edit, own.pairs, chain_data)
                marks = {self.at: scores.values[sample_id]} if chain.has(self.at) else {}
                remark = scores.remarks.get(sample_id, "")
                return ChainExcerpt(chain, marks, chain.failure, chain.failed_at, remark)
        return ChainExcerpt(chain, {}, chain.failure, chain.failed_at)

    def _pairs(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, EditPairs]:
        chain_data.require_recorded(self.plan.start, (self.at,))
        chains = chain_data.chains(self.plan.start, samples)
        part = case.key.part
        edits = (part,) if part in self.own_parts else self.own_parts
        return pair_up(edits, samples, chains)

    def _outcome(self, chain: Chain) -> CaseScores:
        """What stopped a chain before its answer; what stops it later has no part in the score."""
        if chain.has(self.at):
            return CaseScores(chain.sample.id)
        return outcome_of_chain(chain, self.plan)


def _notes(paired: Mapping[str, EditPairs], scored: Mapping[str, PairScores]) -> Iterator[str]:
    for edit, own in paired.items():
        if edit in scored and scored[edit].note:
            yield scored[edit].note
        if own.unchanged:
            yield f"{edit}: {own.unchanged} pairs left out, whose starts it does not change"


def make_equivariance(
    kind: str, name: str, table: EquivarianceTable, context: SuiteContext
) -> EquivarianceMeasure:
    """The measure of a table; there is one kind.

    Raises SuiteError where the suite's data has no edits, or none that the answers can show; for an
    edit that the data has not; for a generation that the chains do not reach.
    """
    plan = context.plan(name, table.start)
    if not 1 <= table.at <= plan.generations:
        raise context.error(
            name, f"at = {table.at}, and the chains have {plan.generations} generations"
        )
    if not context.edits:
        raise context.error(
            name,
            'the data has no edited starts: name some under [data], such as edits = ["mirror"]',
        )
    for edit in table.edits or ():
        if edit not in context.edits:
            raise context.error(name, f"{unknown_name('edit of the data', edit, context.edits)}")
    # A text says nothing of brightness, so a text-first chain has nothing to show.
    shown = [e for e in context.edits if plan.start == "image" or e not in UNSEEN_EDITS]
    edits = tuple(edit for edit in shown if table.edits is None or edit in table.edits)
    if not edits:
        raise context.error(name, f"a text is the same after the edits {', '.join(context.edits)}")
    try:
        comparison = _comparison(table, edits)
    except ValueError as error:
        raise context.error(name, error) from error
    return EquivarianceMeasure(
        **table.shared(name, "samples", "overall"),
        own_parts=edits,
        span=comparison.span,
        plan=plan,
        at=table.at,
        comparison=comparison,
    )


def _comparison(table: EquivarianceTable, edits: Sequence[str]) -> Comparison:
    if table.compare == "facts":
        return FactComparison(table.at, table.score)
    foreign = [edit for edit in edits if edit not in VECTOR_EDITS]
    if foreign:
        raise ValueError(
            f"the edit {foreign[0]!r} cannot be made in any text or image, so vectors do "
            f"not show it: set compare = 'facts', or edits = {list(VECTOR_EDITS)}"
        )
    if table.score != "both":
        raise ValueError(f"score = {table.score!r} is of facts, and vectors are compared")
    return VectorComparison(table.at, table.encoder)
