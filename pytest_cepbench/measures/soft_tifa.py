"""soft_tifa_gm and soft_tifa_am: questions about pictures, answered by a VQA model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import Chain, ChainPlan, Modality
from pytest_cepbench.datasets.questions import questions_of
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.escapes import one_line
from pytest_cepbench.measures.base import (
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    by_category,
    by_part,
    everyone,
    outcome_of_chain,
    population,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.vqa_questions import (
    CONTROLS,
    LEAST_CONTROL,
    PROMPT,
    VQA,
    AnsweredQuestions,
    QuestionSettings,
    control_notes,
)
from pytest_cepbench.metrics.facts import (
    HALF,
    MeanName,
    means_by_kind,
    soft_tifa,
)
from pytest_cepbench.models.binding import BoundRole

_MEANS: Mapping[str, MeanName] = {"soft_tifa_gm": "geometric", "soft_tifa_am": "arithmetic"}

_LABELS = {"soft_tifa_gm": "Soft-TIFA GM", "soft_tifa_am": "Soft-TIFA AM"}

_SHOWN = 3  # questions in a remark


class SoftTifaTable(MetricTable, frozen=True, kw_only=True):
    """soft_tifa_gm, soft_tifa_am: how far a picture or text shows what its sample's questions ask.

    start: of the chains; image-first where the suite plays both and this is left out.
    generation: of the artifact that is asked about; the first picture when left out.
    prompt: what the VQA model is asked, holding `{question}`.
    controls: control questions of each sample, whose answer is known to be no; 0 to ask none, and
    to measure without knowing whether the model says yes to all.
    least_control: share of the control questions, of those about what is there and of those about
    what is not, that must be answered rightly.
    """

    start: Modality | None = None
    generation: int | None = None
    prompt: str = PROMPT
    controls: int = CONTROLS
    least_control: float = LEAST_CONTROL


@dataclass(frozen=True)
class AskedChain:
    """What the VQA model answered about one chain.

    outcome: what stopped the chain or the asking, if anything did.
    score: in [0, 1]; 0 where there is no picture, None where the model could not be asked.
    atoms: probability of each question's right answer, 0 below a failed one; empty where there are
    none.
    controls: probability of the right answer to each control question about the artifact.
    """

    outcome: CaseScores
    score: float | None
    atoms: tuple[float, ...] = ()
    controls: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SoftTifaMeasure(Measure):
    """The mean over samples of Soft-TIFA, each a mean over the questions of its sample.

    A sample without a picture has 0. One that the VQA model could not be asked about has no score.
    The model is asked about the starts too, which the questions are true of: where it answers too
    few of these or of the control questions rightly, nothing is measured. See
    `control_notes` and `SoftTifaTable`.
    """

    kind: str
    plan: ChainPlan
    generation: int
    settings: QuestionSettings

    @property
    def label(self) -> str:
        """Soft-TIFA, and which mean."""
        return _LABELS[self.kind]

    @property
    def identity(self) -> str:
        """Which mean, of what, and how the model is asked."""
        return (
            f"soft-tifa/1 {_MEANS[self.kind]} mean at generation {self.generation} of "
            f"{self.plan.start}-first chains, {self.settings.identity}"
        )

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The artifact that is asked about, and the start."""

        def query(sample: Sample, _: BoundRole) -> str:
            return self.settings.query(sample)

        asked = RequiredFeatures(self.plan, (self.generation,), VQA, query, stops_chain=False)
        return (*self.settings.required_starts(self.plan), asked)

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """Have the VQA model answer."""
        self._asked_chains(chain_data, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One score per sample. Raises MeasurementError where the controls show a blind model."""
        parts = by_category(case, chain_data)
        samples = everyone(parts)
        asked = self._asked_chains(chain_data, samples)
        controls = [probability for chain in asked.values() for probability in chain.controls]
        later = {self.plan.modality(self.generation): controls} if controls else {}
        notes = control_notes(self.name, self.settings, self.plan, chain_data, later)
        content = [[s.id, self.settings.query(s)] for s in population(case, chain_data)]
        return Measured(
            scores=by_part(parts, {name: own.score or 0.0 for name, own in asked.items()}),
            samples=samples,
            outcomes=[asked[sample.id].outcome for sample in samples],
            identity={"questions": digest_json(content)[:16]},
            notes=(*notes, *_kind_note(samples, asked)),
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain with the score of its picture, and the questions that are answered worst."""
        samples = chain_data.named(sample_id)
        asked = self._asked_chains(chain_data, samples)[sample_id]
        chain = chain_data.chains(self.plan.start, samples)[sample_id]
        marks = {} if asked.score is None or not asked.atoms else {self.generation: asked.score}
        questions = questions_of(samples[0])
        worst = sorted(zip(asked.atoms, questions, strict=False), key=lambda pair: pair[0])
        remark = "; ".join(
            f"{one_line(question.text, 80)} {one_line(question.answer, 40)}: {probability:.2f}"
            for probability, question in worst[:_SHOWN]
            if probability < HALF
        )
        return ChainExcerpt(chain, marks, asked.outcome.failure, chain.failed_at, remark)

    def _asked_chains(
        self, chain_data: ChainData, samples: Sequence[Sample]
    ) -> dict[str, AskedChain]:
        chain_data.require_recorded(self.plan.start, (self.generation,))

        return chain_data.per_chain(
            self, self.plan.start, samples, lambda chains: self._ask(chains, chain_data)
        )

    def _ask(self, chains: Sequence[Chain], chain_data: ChainData) -> dict[str, AskedChain]:
        if self.settings.controls:
            self.settings.ask(chains, 0, chain_data)  # stored, with what the chains are read for
        able = [chain for chain in chains if chain.has(self.generation)]
        results = self.settings.ask(able, self.generation, chain_data)
        answered = {chain.sample.id: own for chain, own in zip(able, results, strict=True)}
        return {
            chain.sample.id: self._sum_up(chain, answered.get(chain.sample.id)) for chain in chains
        }

    def _sum_up(self, chain: Chain, answered: AnsweredQuestions | Failure | None) -> AskedChain:
        """answered: about the artifact, None where there is none."""
        outcome = outcome_of_chain(chain, self.plan)
        if answered is None:
            return AskedChain(outcome, 0.0)
        if isinstance(answered, Failure):
            return AskedChain(CaseScores(chain.sample.id, answered, VQA), None)
        score = soft_tifa(answered.atoms, _MEANS[self.kind])
        return AskedChain(outcome, score, answered.atoms, answered.controls)


def _kind_note(samples: Sequence[Sample], asked: Mapping[str, AskedChain]) -> tuple[str, ...]:
    """The mean probability of the right answer by kind of question, as GenEval 2 does by skill."""
    kinds: list[str] = []
    atoms: list[float] = []
    for sample in samples:
        own = asked[sample.id].atoms
        if own:
            kinds += [question.kind for question in questions_of(sample)]
            atoms += own
    if not atoms:
        return ()
    shown = ", ".join(
        f"{kind} {mean:.3f} ({count:,})"
        for kind, (mean, count) in means_by_kind(kinds, atoms).items()
    )
    return (f"right answers by kind of question: {shown}",)


def make_soft_tifa(
    kind: str, name: str, table: SoftTifaTable, context: SuiteContext
) -> SoftTifaMeasure:
    """The measure of a table. Raises SuiteError for settings that do not fit."""
    plan = context.plan(name, table.start)
    generation = table.generation
    if generation is None:
        generation = 1 if plan.start == "text" else 2
    problem = ""
    settings = QuestionSettings()
    try:
        settings = QuestionSettings(table.prompt, table.controls, table.least_control)
    except ValueError as error:
        problem = str(error)
    if not 1 <= generation <= plan.generations:
        problem = f"generation = {generation}: 1 to {plan.generations} is expected"
    if problem:
        raise context.error(name, f"{problem}")
    return SoftTifaMeasure(
        **table.shared(name),
        kind=kind,
        plan=plan,
        generation=generation,
        settings=settings,
    )
