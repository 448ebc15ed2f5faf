"""The interleaved answers of a suite and their battles, each made once, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.artifacts.outcome import CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import (
    AnswerPlan,
    BattleRules,
    PieceRefs,
    refer_to_answer,
    refer_to_gold,
    refer_to_question,
)
from pytest_cepbench.chains.answers.answering import AnswerModels, SampleAnswer, make_answers
from pytest_cepbench.chains.answers.battles import (
    AnswerPair,
    PairOutcome,
    judge_pairs,
    score_answers,
)
from pytest_cepbench.chains.growth import digest_of_image
from pytest_cepbench.datasets.sample import Dataset, Sample, SeedImage
from pytest_cepbench.errors import DamagedInputsError, DatasetError, StoreError
from pytest_cepbench.measures.cases import SampleData
from pytest_cepbench.store import Store
from pytest_cepbench.store.answers import get_answers

V = TypeVar("V")

LoadedStep = tuple[str, ImageArtifact | None]
"""A step's text, empty where it has none, and its image."""

_ROUNDING = 2
"""Levels of 255 that make no other image: another processor's sums move a number by one."""

_MOST_REPAIRS = 4  # each makes lost images again; more means a dying disk


@dataclass(frozen=True)
class Opponents:
    """Answers that a candidate battles, by digest.

    answers: sample id -> digest; empty for a sample without an answer.
    identity: of the model that made them, as measurements keep it.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""


@dataclass(frozen=True)
class CaseOpponents:
    """The accepted answers that a case's answers battle; None where nothing was accepted.

    accepted: of the last baseline. anchor: of the anchor, where it is another one.
    """

    accepted: Opponents | None = None
    anchor: Opponents | None = None


class AnswerData(SampleData):
    """The answers to the questions of one suite, their battles, and their scores.

    dataset, population: as of `SampleData`.
    plan: how the questions are asked.
    rules: how answers battle.
    models: those that answer.
    runner: gives the runner of a role by its name.
    opponents: what the answers of a case battle.
    """

    def __init__(
        self,
        dataset: Dataset,
        plan: AnswerPlan,
        rules: BattleRules,
        models: AnswerModels,
        runner: Callable[[str], RoleRunner],
    ) -> None:
        super().__init__(dataset, models.store)
        self.plan = plan
        self.rules = rules
        self.models = models
        self.runner = runner
        self._answers: dict[str, SampleAnswer] = {}
        # By sample, answer and the opposing one; by sample and answer.
        self._outcomes: dict[tuple[str, str, str], PairOutcome] = {}
        self._scores: dict[tuple[str, str], CriteriaScores] = {}
        self._stored: dict[str, Answer] = {}
        self.opponents = CaseOpponents()

    def against(self, opponents: CaseOpponents) -> AnswerData:
        """The same answers, in battles with those of a case."""
        look = copy(self)
        look.opponents = opponents
        return look

    def starts(self, samples: Sequence[Sample]) -> dict[str, str]:
        """Digest of each sample's question, by id. Raises DatasetError for one that is none."""
        known: dict[str, str] = self._known.setdefault("questions", {})
        for sample in samples:
            if sample.id not in known:
                known[sample.id] = refer_to_question(sample, self.store).digest
        return {sample.id: known[sample.id] for sample in samples}

    def answers(self, samples: Sequence[Sample]) -> dict[str, SampleAnswer]:
        """The answer to each sample's question, by id. Raises as `make_answers`."""
        missing = [sample for sample in samples if sample.id not in self._answers]
        for shard in self.shards(missing).values():
            for own in make_answers(self.plan, shard, self.models):
                self._answers[own.sample.id] = own
            self.store.artifact_cache.clear()
        return {sample.id: self._answers[sample.id] for sample in samples}

    def keep_answers(self, answers: Sequence[SampleAnswer]) -> None:
        """Keep answers that the store has whole, as if they were made now."""
        self._answers.update((own.sample.id, own) for own in answers)

    def stored_answers(self, digests: Iterable[str]) -> dict[str, Answer]:
        """The answers of these digests that are known, or that the store has whole.

        Looked up once: every part of a suite asks for the same answers. One that is lost later is
        noticed where it is to be judged.
        """
        wanted = set(digests)
        known = {own.digest: own.answer for own in self._answers.values() if own.answer is not None}
        if missing := wanted - known.keys() - self._stored.keys():
            self._stored |= get_answers(self.store, missing)
        known |= self._stored
        return {digest: known[digest] for digest in wanted if digest in known}

    def battles(
        self, samples: Sequence[Sample], opponents: Opponents | None
    ) -> dict[str, PairOutcome]:
        """The outcome of each sample's battle, by id.

        opponents: the answers that are battled; None for the samples' reference answers.
        Samples for which there is no opponent, or whose opposing answer the store has lost, are
        left out. Raises as `judge_pairs`, DatasetError for a sample without a reference answer, and
        StoreError where images keep getting lost.
        """
        sides = {s.id: side for s in samples if (side := _side(s, opponents)) is not None}
        able = [sample for sample in samples if sample.id in sides]
        return self._repaired(able, lambda: self._battles(able, sides))

    def known_outcome(self, sample: Sample, opponents: Opponents | None) -> PairOutcome | None:
        """The outcome of a sample's battle where it was fought before; no judge is asked.

        opponents: as of `battles`.
        """
        own, side = self._answers.get(sample.id), _side(sample, opponents)
        if own is None or side is None:
            return None
        return self._outcomes.get((sample.id, own.digest, side))

    def per_answer(
        self,
        name: str,
        samples: Sequence[Sample],
        read: Callable[[Sample, Sequence[LoadedStep]], Sequence[float]],
    ) -> dict[str, tuple[float, ...]]:
        """The numbers that `read` gives of each answer with its images, by sample id.

        name: of the definition. Samples without an answer are left out. Raises StoreError where
        images keep getting lost.
        """
        known: dict[str, tuple[float, ...]] = self._known.setdefault(name, {})

        def read_all() -> None:
            # Those whose images were lost a moment ago are made again here.
            for sample_id, own in self.answers(samples).items():
                if own.answer is None or sample_id in known:
                    continue
                images = {digest: self.store.get_image(digest) for digest in own.answer.images}
                if None in images.values():
                    raise DamagedInputsError([0])
                steps = [
                    (step.text, None if step.image is None else images[step.image])
                    for step in own.answer.steps
                ]
                known[sample_id] = tuple(read(own.sample, steps))

        self._repaired(samples, read_all)
        return {sample.id: known[sample.id] for sample in samples if sample.id in known}

    def _repaired(self, samples: Sequence[Sample], use: Callable[[], V]) -> V:
        """The result of `use`; where it meets damaged images their answers are made again."""
        for _ in range(_MOST_REPAIRS):
            try:
                return use()
            except DamagedInputsError:
                for sample in samples:  # `make_answers` makes those anew that lost an image
                    self._answers.pop(sample.id, None)
        raise StoreError(
            f"images in the store {self.store.root} keep getting lost: is the disk failing?"
        )

    def _battles(
        self, samples: Sequence[Sample], sides: Mapping[str, str]
    ) -> dict[str, PairOutcome]:
        outcomes: dict[str, PairOutcome] = {}
        for shard in self.shards(samples).values():
            answers = self.answers(shard)
            keys = {s.id: (s.id, answers[s.id].digest, sides[s.id]) for s in shard}
            missing = [sample for sample in shard if keys[sample.id] not in self._outcomes]
            opponents = self._opposing(missing, sides)
            pairs = [self._pair(answers[name], other) for name, other in opponents.items()]
            judged = judge_pairs(pairs, self.rules, self.runner("judge")) if pairs else []
            self._outcomes.update(zip((keys[name] for name in opponents), judged, strict=True))
            self.store.artifact_cache.clear()
            known = self._outcomes
            outcomes |= {name: known[key] for name, key in keys.items() if key in known}
        return outcomes

    def _opposing(
        self, samples: Sequence[Sample], sides: Mapping[str, str]
    ) -> dict[str, PieceRefs | None]:
        """The opposing answers: None for one that is missing; those that are lost are left out."""
        digests = {s.id: side for s in samples if (side := sides[s.id]) != _GOLD}
        wanted = set(digests.values()) - {""}
        stored = get_answers(self.store, wanted)
        opposing: dict[str, PieceRefs | None] = {
            name: refer_to_answer(stored[digest], name) if digest else None
            for name, digest in digests.items()
            if not digest or digest in stored
        }
        for sample in samples:
            if sample.id not in digests:
                gold = refer_to_gold(sample, self.store)
                if gold is None:
                    raise DatasetError(f"{sample.id}: has no reference answer to battle")
                opposing[sample.id] = gold
        return opposing

    def redrawn(
        self, samples: Sequence[Sample], opponents: Opponents
    ) -> frozenset[tuple[str, str]]:
        """Ids of samples and digests of opposing answers that are their own but for rounding.

        Texts are equal, and no number of an image is farther than `_ROUNDING` levels from the other
        image's, as where another processor draws it. Equal answers are none of them, nor are those
        with a lost image.
        """
        known = self._known.setdefault("redrawn", {})
        pairs = {
            name: (own.digest, other)
            for name, own in self.answers(samples).items()
            if (other := opponents.answers.get(name)) and own.digest not in ("", other)
        }
        new = [pair for pair in pairs.values() if " ".join(pair) not in known]
        answers = get_answers(self.store, {digest for pair in new for digest in pair})
        for own, other in new:
            if own in answers and other in answers:
                known[f"{own} {other}"] = self._is_redrawn(answers[own], answers[other])
        return frozenset((n, pair[1]) for n, pair in pairs.items() if known.get(" ".join(pair)))

    def _is_redrawn(self, own: Answer, other: Answer) -> bool:
        """Whether answers that differ are one but for rounding."""
        frames = [[(step.text, step.image is None) for step in a.steps] for a in (own, other)]
        if frames[0] != frames[1]:
            return False
        for pair in zip(own.images, other.images, strict=True):
            drawn = [self.store.get_image(digest) for digest in pair]
            pixels = [image.pixels.astype(np.int16) for image in drawn if image is not None]
            if len(pixels) < 2 or pixels[0].shape != pixels[1].shape:
                return False
            if np.abs(pixels[0] - pixels[1]).max() > _ROUNDING:
                return False
        return True

    def scores(self, samples: Sequence[Sample]) -> dict[str, CriteriaScores]:
        """The judge's scores of each sample's answer, by id; those without an answer are left out.

        Raises as `score_answers`, and StoreError where images keep getting lost.
        """
        return self._repaired(samples, lambda: self._read_scores(samples))

    def _read_scores(self, samples: Sequence[Sample]) -> dict[str, CriteriaScores]:
        scores: dict[str, CriteriaScores] = {}
        for shard in self.shards(samples).values():
            answered = {n: own for n, own in self.answers(shard).items() if own.answer is not None}
            keys = {name: (name, own.digest) for name, own in answered.items()}
            missing = [name for name, key in keys.items() if key not in self._scores]
            if missing:
                pairs = [self._pair(answered[name], None) for name in missing]
                made = score_answers(pairs, self.rules.seed, self.runner("judge"))
                self._scores.update(zip((keys[name] for name in missing), made, strict=True))
            self.store.artifact_cache.clear()
            scores |= {name: self._scores[key] for name, key in keys.items()}
        return scores

    def known_scores(self, sample: Sample) -> CriteriaScores | None:
        """The scores of a sample's answer where it was scored before; no judge is asked."""
        own = self._answers.get(sample.id)
        return None if own is None else self._scores.get((sample.id, own.digest))

    def pairs(self, samples: Sequence[Sample], opponents: Opponents) -> list[AnswerPair]:
        """The samples' battles as they are judged; an opposing answer that is lost is missing."""
        named = {s.id: opponents.answers.get(s.id, "") for s in samples}
        stored = self.stored_answers(set(named.values()) - {""})
        pairs = []
        for name, own in self.answers(samples).items():
            other = stored.get(named[name])
            pairs.append(self._pair(own, None if other is None else refer_to_answer(other, name)))
        return pairs

    def _pair(self, own: SampleAnswer, opponent: PieceRefs | None) -> AnswerPair:
        sample, answer = own.sample, own.answer
        candidate = None if answer is None else refer_to_answer(answer, sample.id)
        return AnswerPair(sample.id, refer_to_question(sample, self.store), candidate, opponent)


_GOLD = "gold"
"""In the place of an opposing answer's digest: the sample's reference answer."""


def _side(sample: Sample, opponents: Opponents | None) -> str | None:
    """What a sample's answer battles: a digest, "" for a missing answer; None where nothing is."""
    return _GOLD if opponents is None else opponents.answers.get(sample.id)


OpponentName = Literal["accepted", "anchor", "reference"]
"""Whose answer a battle was against: the baseline's, the anchor's, or the data set's own."""


@dataclass(frozen=True)
class ExcerptStep:
    """One step of an answer, or one text or image of a question.

    text: empty where it has none.
    image: digest of its image; None where it has none.
    source: the image, where it is the data set's and need not be in the store.
    """

    text: str = ""
    image: str | None = None
    source: SeedImage | None = None


@dataclass(frozen=True)
class AnswerExcerpt:
    """A sample's question and answer.

    question: its texts and images, in order.
    steps: of the candidate's answer; none where there is no answer.
    failure: why there is none.
    opponent: whose answer it battled; None where the case has no battles.
    opposing: the steps of that answer; none where it is missing.
    opposing_lost: whether the store lacks that answer.
    outcome: of the battle; None where it was not fought.
    remark: what else a reader should know of the score; holds a judge's words.
    """

    question: tuple[ExcerptStep, ...]
    steps: tuple[ExcerptStep, ...]
    failure: Failure | None = None
    opponent: OpponentName | None = None
    opposing: tuple[ExcerptStep, ...] = ()
    opposing_lost: bool = False
    outcome: PairOutcome | None = None
    remark: str = ""


def excerpt_question(sample: Sample, store: Store) -> tuple[ExcerptStep, ...]:
    """The parts of a sample's question. Raises DatasetError for an image that is none."""
    digests = [digest for _, digest in refer_to_question(sample, store).inputs]
    return tuple(
        ExcerptStep(text=piece)
        if isinstance(piece, str)
        else ExcerptStep(image=digest, source=piece)
        for piece, digest in zip(sample.question, digests, strict=True)
    )


def excerpt_answer(answer: Answer | None) -> tuple[ExcerptStep, ...]:
    """The steps of a stored answer; none where there is no answer."""
    return () if answer is None else tuple(ExcerptStep(s.text, s.image) for s in answer.steps)


def excerpt_gold(sample: Sample, store: Store) -> tuple[ExcerptStep, ...]:
    """The steps of a sample's reference answer. Raises ImageError for an image that is none."""
    return tuple(
        ExcerptStep(
            step.text,
            None if step.image is None else digest_of_image(step.image, store),
            step.image,
        )
        for step in sample.gold
    )
