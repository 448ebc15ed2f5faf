"""Suites of interleaved answers over the arena of shapes, measured in this process.

Real files, models and stores; baselines are written as accepting writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace as replaced
from PIL import Image

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.outcome import CRITERIA
from pytest_cepbench.datasets.sample import Dataset, GoldStep, Sample
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena
from pytest_cepbench.datasets.shapes.arena.truth import AnswerDegradation
from pytest_cepbench.gate import Judgement, dump_baseline, judge, record_of
from pytest_cepbench.gate.baseline import anchor_path, baseline_path, read_baseline
from pytest_cepbench.models.protocols import AnsweredQuestion, AnswerStep, Battle, Reply
from pytest_cepbench.models.rule_based.arena_models import (
    JudgeKnobs,
    ShapesInterleaver,
    ShapesJudge,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, ModelPool, RoleChoices, load_prepared_suite
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.gate_config import Overrides, claim_of, settle
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.gate.build import replace

HEAD = """\
name = "arena"
version = 1
[data]
loader = "shapes-arena"
options = { samples_per_category = 2 }
[prompts]
"""

ANSWERS = f"""\
{HEAD}
[answer]
[roles]
interleaver = "shapes:"
judge = "shapes:"
[metrics.win_rate]
tolerance = 0.05
[metrics.truth]
[metrics.failures]
gate = "threshold"
tolerance = 0.0
[metrics.judge_failures]
gate = "threshold"
tolerance = 0.0
"""
"""Twenty questions in ten categories, by the embedded interleaver and judge."""

PIPELINE = ANSWERS.replace('interleaver = "shapes:"', 'writer = "shapes:"\ngenerator = "shapes:"')

WORSE = "shapes:?miss=0.3"


@dataclass(frozen=True)
class MeasuredSuite:
    """A suite of answers that is ready to be measured, and its baselines."""

    run: AnswerRun
    cases: Mapping[str, Case]
    pool: ModelPool
    baselines: Path

    def measure(self, case_id: str = "overall-win_rate") -> CaseMeasurement:
        """What is measured of a case."""
        return self.run.measure(self.cases[case_id])

    def judge(self, case_id: str = "overall-win_rate") -> Judgement:
        """The verdict on a case, as the suite's file has it."""
        key = self.cases[case_id].key
        policies = settle(
            {c.key: claim_of(self.run.suite, c.key, Overrides()) for c in self.cases.values()}
        )
        return judge(
            self.measure(case_id),
            read_baseline(baseline_path(self.baselines, key), key),
            policies[key],
            anchor=read_baseline(anchor_path(self.baselines, key), key),
        )

    def accept(
        self, only: Sequence[str] = (), *, anchor: bool = False, identity: str | None = None
    ) -> None:
        """Make every case, or those that are named, the baseline, or the anchor.

        identity: what the file says of the model, where it was edited.
        """
        for case in [self.cases[name] for name in only] or self.cases.values():
            path_of = anchor_path if anchor else baseline_path
            path = path_of(self.baselines, case.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            record = record_of(self.run.measure(case))
            if identity is not None:
                record = replaced(record, model=record.model | {"identity": identity})
            path.write_text(dump_baseline(record), encoding="utf-8")

    def answers(self) -> dict[str, str]:
        """Digest of each sample's answer, without a battle."""
        made = self.run.data.answers(self.run.dataset.samples)
        return {name: own.digest for name, own in made.items()}

    def inputs(self, role: str) -> int:
        """How many inputs the model of a role was asked about."""
        return self.run.runner(role).tally.inputs


def prepare(
    folder: Path,
    store: Store,
    text: str = ANSWERS,
    model: str | None = None,
    samples: int | None = None,
    **choices: Any,
) -> MeasuredSuite:
    """Read a suite's text and assign its models; baselines lie in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    prepared = load_prepared_suite(path, RoleChoices(model, **choices), {}, samples)
    pool, baselines = ModelPool(store), folder / "baselines"
    run = prepared.run(pool, baselines)
    assert isinstance(run, AnswerRun)
    return MeasuredSuite(run, {case.id: case for case in prepared.cases}, pool, baselines)


# -- data and models of a user ---------------------------------------------------------------------


class BusyGenerator:
    """A generator whose server does not answer for every text."""

    fingerprint, seeded = "busy/1", False

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Reply]:
        """A failure that may pass for each text, as of a served model."""
        return [Reply(Failure("unanswered", "after 9 requests: 503"), passing=True) for _ in texts]


def other_gold(steps: str = "") -> Dataset:
    """The arena's questions with other reference answers, or none, under the same identity.

    steps: of each answer: "" for none, "same" for its own, "more" for one that is there twice, and
    any other text for those with this text in place of theirs.
    """

    def gold_of(sample: Sample) -> tuple[GoldStep, ...]:
        own = sample.gold
        known = {"": (), "same": own, "more": (*own, own[0])}
        return known.get(steps, tuple(GoldStep(steps, step.image) for step in own))

    whole = load_shapes_arena(samples_per_category=1)
    samples = tuple(replace(sample, gold=gold_of(sample)) for sample in whole.samples)
    return Dataset("other gold", {"loader": "other gold"}, samples)


class RedrawnInterleaver(ShapesInterleaver):
    """Answers as the embedded interleaver does, every image some levels darker in one corner; of
    another size where it is darker by none.
    """

    def __init__(self, levels: str) -> None:
        super().__init__(AnswerDegradation())
        object.__setattr__(self, "levels", int(levels))

    fingerprint = "redrawn/1"

    def interleave(self, questions: Any, limits: Any, seeds: Any) -> Any:
        """The embedded answers, redrawn."""
        return [
            tuple(AnswerStep(step.text, self._redrawn(step.image)) for step in answer)
            for answer in super().interleave(questions, limits, seeds)
            if not isinstance(answer, Failure)
        ]

    def _redrawn(self, image: Any) -> Any:
        pixels = np.asarray(image).copy()
        corner = pixels[:8, :8].astype(int) - self.levels  # type: ignore[attr-defined]
        pixels[:8, :8] = corner.clip(0)
        return Image.fromarray(pixels if self.levels else pixels[1:])  # type: ignore[attr-defined]


class SilentJudge(ShapesJudge):
    """Judges as the embedded judge does, and says nothing of a share of the battles."""

    fingerprint = "silent/1"

    def __init__(self) -> None:
        super().__init__(JudgeKnobs())

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Any]:
        """No verdict where the seed is even."""
        verdicts = super().judge(battles, seeds)
        return [
            verdict if seed % 2 else Failure("no-verdict", "cannot say")
            for verdict, seed in zip(verdicts, seeds, strict=True)
        ]


class BattleJudge:
    """A judge of battles alone: it scores no single answer."""

    fingerprint = "battles/1"

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Any]:
        """The first answer."""
        return ["A"] * len(battles)


class DullJudge(ShapesJudge):
    """A judge that tells little or nothing apart.

    way: "ties" (that lean to either side by turns), "content" (ties that lean by the first answer),
    "first" (A in nine of ten, else B, whatever is shown), "coarse" (all are ties but answers to
    other questions).
    """

    def __init__(self, way: str) -> None:
        super().__init__(JudgeKnobs())
        self.way, self.fingerprint = way, f"dull/1/{way}"

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Any]:
        """The verdicts."""
        return [self._dull(*each) for each in zip(battles, seeds, strict=True)]

    def _dull(self, battle: Battle, seed: int) -> Any:
        first, second = _words(battle.first), _words(battle.second)
        digests = [int(digest_text(words)[:8], 16) for words in (first, second)]
        if self.way == "first":
            return "A" if (digests[0] ^ digests[1]) % 10 else "B"
        if self.way == "coarse" and len(set(first.split()) & set(second.split())) < 4:
            return super().judge([battle], [seed])[0]
        return ("Tie(A)", "Tie(B)")[(digests[0] if self.way == "content" else seed) % 2]


def _words(pieces: Sequence[Any]) -> str:
    return " ".join(piece for piece in pieces if isinstance(piece, str))


DISLIKED = 5


class FussyJudge(ShapesJudge):
    """Scores as the embedded judge does, but nothing where a step lacks its image, and no quality
    where the letters of an answer's texts are a multiple of `DISLIKED`.
    """

    fingerprint, seeded = "fussy/1", False

    def __init__(self) -> None:
        super().__init__(JudgeKnobs())

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> list[Any]:
        """Scores, or what there is of them."""
        scores: list[Any] = super().score_answers(answers, seeds)
        for number, answered in enumerate(answers):
            texts = [piece for piece in answered.answer if isinstance(piece, str)]
            if 2 * len(texts) > len(answered.answer):
                scores[number] = Failure("no-score", "a step lacks its image")
            elif sum(map(len, texts)) % DISLIKED == 0:
                numbers = dict(scores[number].by_criterion)
                scores[number] = {name: n for name, n in numbers.items() if name != "quality"}
        return scores


class EvenJudge(BattleJudge):
    """Gives every answer the same scores."""

    fingerprint = "even/1"

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> list[Any]:
        """Seven times 7."""
        return [dict.fromkeys(CRITERIA, 7) for _ in answers]


class MuteJudge(BattleJudge):
    """Scores nothing at all."""

    fingerprint = "mute/1"

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> list[Any]:
        """A refusal for each."""
        return [Failure("refused", "not my business") for _ in answers]
