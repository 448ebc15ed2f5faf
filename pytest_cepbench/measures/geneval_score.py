"""geneval and mgg: whether the images show what their prompts name, by GenEval's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pytest_cepbench.artifacts import Detections, Failure, digest_json
from pytest_cepbench.chains import Chain, ChainPlan
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate.measurement import Blindness
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
    outcome_of_chain,
    population,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.geneval_facts import (
    DETECTOR,
    PictureReader,
    PromptedImage,
    prompt_of,
)
from pytest_cepbench.metrics.constancy import most_common
from pytest_cepbench.metrics.geneval import PromptResult as Verdict
from pytest_cepbench.metrics.geneval import (
    ToColor,
    judge,
    objects_to_color,
    overall_by_generation,
)
from pytest_cepbench.metrics.geneval_prompts import (
    GENEVAL,
    MGG_CODE,
    prompt_metadata,
)

_PRESETS = {"geneval": GENEVAL, "mgg-code": MGG_CODE}

LABELS = {"geneval": "GenEval", "mgg": "MGG"}


class GenevalTable(MetricTable, frozen=True, kw_only=True):
    """geneval, mgg: whether what the prompt names is in the image, by GenEval's rules.

    rules: "geneval", or "mgg-code" for what the Telephone Game's released code does instead, in
    which only threshold and position_threshold have a part. Numbers that are left out are those of
    the rules.
    threshold, counting_threshold: least confidence of a detection (exclusive), and that in
    counting.
    max_objects: most detections of a class that are looked at. max_overlap: intersection over union
    above which the less confident of two boxes of a class is dropped; 1 drops none.
    position_threshold: share of the summed sizes that two centers must be apart.
    colors: who tells them: "clip" (zero-shot on crops, by the `color_encoder`), "detector" (one
    that does so by itself), "query" (asked of the detector in words; the only way of "mgg-code").
    color_encoder: the role of the dual encoder that tells colors.
    """

    rules: Literal["geneval", "mgg-code"] = "geneval"
    threshold: float | None = None
    counting_threshold: float | None = None
    max_objects: int | None = None
    max_overlap: float | None = None
    position_threshold: float | None = None
    colors: Literal["clip", "detector", "query"] | None = None
    color_encoder: str = ENCODER


@dataclass(frozen=True)
class RuledChain:
    """The judgements of the images of one chain.

    correct: at each generation; False too where there is no image.
    reasons: why not, of the first that is wrong.
    outcome: what stopped the chain, if anything did.
    seen: digest of each image, and a number that stands for the boxes found in it.
    """

    correct: tuple[bool, ...]
    reasons: tuple[str, ...]
    outcome: CaseScores
    seen: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class GenevalMeasure(Measure):
    """The share of right images: of the first one (GenEval), or over all generations (MGG).

    A prompt's score is the share of its images that are right, and a task's the mean over its
    prompts; the whole is the unweighted mean of the tasks, or with pool = "samples" the
    micro-average over all images, which is what the Telephone Game's released code prints.
    A prompt without an image is wrong. See `GenevalTable`.
    """

    kind: str
    plan: ChainPlan
    generations: tuple[int, ...]
    reader: PictureReader

    @property
    def label(self) -> str:
        """GenEval or MGG."""
        return LABELS[self.kind]

    @property
    def identity(self) -> str:
        """Rules, thresholds, who tells colors."""
        return f"{self.kind}/1 {self.reader.identity}, over {self.pool}"

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The images of the generations that count, and what is cut out of them."""
        return self.reader.required_features(self.plan, self.generations)

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """Have the detector look at the images, and the encoder at cut-outs."""
        self._ruled_chains(chain_data, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One score per prompt."""
        parts = by_category(case, chain_data)
        samples = everyone(parts)
        ruled_chains = self._ruled_chains(chain_data, samples)
        correct = np.array([ruled_chains[sample.id].correct for sample in samples])
        tasks = [sample.categories[0] for sample in samples]
        curve = (
            correct.mean(axis=0)
            if self.pool == "samples"
            else overall_by_generation(correct, tasks)
        )
        clauses = [[s.id, prompt_metadata(prompt_of(s))] for s in population(case, chain_data)]
        return Measured(
            scores={
                name: {s.id: float(np.mean(ruled_chains[s.id].correct)) for s in part}
                for name, part in parts.items()
            },
            samples=samples,
            outcomes=[ruled_chains[sample.id].outcome for sample in samples],
            curve=tuple(curve.tolist()) if len(self.generations) > 1 else (),
            identity={"clauses": digest_json(clauses)[:16]},
            shares=True,
            blind=_same_boxes(ruled_chains.values()),
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain, 1 at the images that are right, and why the first other one is not."""
        samples = chain_data.named(sample_id)
        judged = self._ruled_chains(chain_data, samples)[sample_id]
        chain = chain_data.chains("text", samples)[sample_id]
        marks = {g: float(c) for g, c in zip(self.generations, judged.correct, strict=True)}
        return ChainExcerpt(
            chain,
            {g: mark for g, mark in marks.items() if chain.has(g)},
            judged.outcome.failure,
            chain.failed_at,
            "; ".join(judged.reasons),
        )

    def _ruled_chains(
        self, chain_data: ChainData, samples: Sequence[Sample]
    ) -> dict[str, RuledChain]:
        chain_data.require_recorded("text", self.generations)

        return chain_data.per_chain(
            self, "text", samples, lambda chains: self._rule_chains(chains, chain_data)
        )

    def _rule_chains(self, chains: Sequence[Chain], chain_data: ChainData) -> dict[str, RuledChain]:
        names = [chain.sample.id for chain in chains]
        judged: dict[str, list[tuple[int, Verdict]]] = {name: [] for name in names}
        seen: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
        undetected: dict[str, tuple[Failure, str]] = {}
        untold: dict[str, tuple[Failure, str]] = {}
        for generation in self.generations:
            able = [chain for chain in chains if chain.has(generation)]
            images = self.reader.read(able, generation, chain_data)
            for chain, own in zip(able, images, strict=True):
                name = chain.sample.id
                if isinstance(own.detections, Failure):
                    undetected[name] = (own.detections, DETECTOR)
                    continue
                seen[name].append(
                    (chain.links[generation].digest, _digest_of_boxes(own.detections))
                )
                if isinstance(own.colors, Failure):
                    untold[name] = (own.colors, self.reader.color_encoder)
                    continue
                assert own.image is not None
                judged[name].append((generation, self._judge(own.image, own.colors)))
        failed = untold | undetected
        return {
            name: replace(self._sum_up(chain, judged[name], failed), seen=tuple(seen[name]))
            for name, chain in zip(names, chains, strict=True)
        }

    def _judge(self, image: PromptedImage, colors: Mapping[ToColor, str]) -> Verdict:
        settings = self.reader.settings
        untold = objects_to_color(image.prompt, image.objects, settings)
        if untold and self.reader.colors != "clip":
            raise MeasurementError(
                f"{self.name}: colors = {self.reader.colors!r}, and the detector tells none (of "
                f"{untold[0].name!r} in {image.chain.sample.id!r}): use colors = 'clip'"
            )
        return judge(image.prompt, image.objects, colors, settings)

    def _sum_up(
        self,
        chain: Chain,
        judged: Sequence[tuple[int, Verdict]],
        failed: Mapping[str, tuple[Failure, str]],
    ) -> RuledChain:
        """failed: what a role could not read of a chain, and the role."""
        name = chain.sample.id
        right = {generation for generation, verdict in judged if verdict.correct}
        wrong = [(g, verdict) for g, verdict in judged if not verdict.correct]
        reasons: tuple[str, ...] = ()
        if wrong:
            generation, verdict = wrong[0]
            where = f"generation {generation}: " if len(self.generations) > 1 else ""
            reasons = tuple(f"{where}{reason}" for reason in verdict.reasons)
        outcome = outcome_of_chain(chain, self.plan)
        if name in failed:
            outcome = CaseScores(name, *failed[name])
        return RuledChain(tuple(g in right for g in self.generations), reasons, outcome)


_NOTHING_FOUND = hash(())


def _digest_of_boxes(detections: Detections) -> int:
    """Equal for equal boxes of equal confidence, whatever was asked for."""
    return hash(tuple((detection.box, detection.score) for detection in detections.found))


def _same_boxes(ruled_chains: Iterable[RuledChain]) -> Blindness | None:
    """Why no drop would be seen, where a detector does not tell images apart."""
    common = most_common(pair for chain in ruled_chains for pair in chain.seen)
    if common is None or not common.constant:
        return None
    found = "nothing" if common.answer == _NOTHING_FOUND else "the same boxes"
    return Blindness(f"the detector found {found} in {common} different images", 1.0)


def make_geneval(
    kind: str, name: str, table: GenevalTable, context: SuiteContext
) -> GenevalMeasure:
    """The measure of a table.

    Raises SuiteError where the suite has no text-first chains, or a setting is out of range.
    """
    plan = context.plan(name, "text")
    last = 1 if kind == "geneval" else plan.generations
    colors = table.colors or ("query" if table.rules == "mgg-code" else "clip")
    if table.rules == "mgg-code" and colors != "query":
        raise context.error(
            name,
            f"rules = 'mgg-code' asks the detector for "
            f"colors in words: colors = 'query' is expected, got {colors!r}",
        )
    named = ("threshold", "counting_threshold", "max_objects", "max_overlap", "position_threshold")
    own = {field: getattr(table, field) for field in named if getattr(table, field) is not None}
    try:
        settings = replace(_PRESETS[table.rules], **own)
    except ValueError as error:
        raise context.error(name, error) from error
    return GenevalMeasure(
        **table.shared(name),
        kind=kind,
        plan=plan,
        generations=tuple(range(1, last + 1, 2)),
        reader=PictureReader(name, settings, colors, table.color_encoder),
    )
