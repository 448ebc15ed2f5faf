"""Keys under which stores hold answers, their parts and their verdicts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.answer import Answer, StoredStep
from pytest_cepbench.chains.answers.answer_plan import (
    AnswerPlan,
    BattleRules,
    refer_to_answer,
    refer_to_question,
)
from pytest_cepbench.chains.answers.answering import AnswerModels, make_answers
from pytest_cepbench.chains.answers.battles import AnswerPair, judge_pairs
from pytest_cepbench.store import Store
from tests.chains.answers.roles import (
    SmallEditor,
    SmallGenerator,
    SmallInterleaver,
    SmallJudge,
    SmallWriter,
    picture,
    pipeline,
    question,
    runner,
)
from tests.golden.frozen import assert_frozen

SAMPLES = [question(0, gold=2), question(1, gold=3, image=False)]

PLANS = {
    "free": AnswerPlan(),
    "gold": AnswerPlan("gold", 2, 7, "be brief", "draw {step}", "change {step} of {question}"),
}


def test_answers_by_their_digests() -> None:
    """The same texts and images have the same digest and JSON for ever."""
    image = ImageArtifact(picture("golden")).digest
    answer = Answer((StoredStep("a \N{SNOWMAN}", image), StoredStep("b", None)))
    assert_frozen("answer.json", {"digest": answer.digest, "text": answer.to_json()})


def test_keys_of_answers_and_verdicts(tmp_path: Path) -> None:
    """A store that was filled by any version serves this one: not one key has moved."""
    keys = {}
    for name, plan in PLANS.items():
        with Store(tmp_path / name) as store:
            _fill(store, plan)
        with closing(sqlite3.connect(tmp_path / name / "index.sqlite")) as database:
            rows = database.execute("SELECT key, kind FROM results ORDER BY key").fetchall()
        keys[name] = [f"{key.hex()[:16]} {kind}" for key, kind in rows]
    assert_frozen("answer_keys.json", keys)


def _fill(store: Store, plan: AnswerPlan) -> None:
    """One of everything: answers by a pipeline and by an interleaver, which battle each other."""
    composed = pipeline(store, SmallWriter(), SmallGenerator(), SmallEditor())
    alone = AnswerModels(store, runner(store, "interleaver", SmallInterleaver()))
    pairs = []
    for own, other in zip(
        make_answers(plan, SAMPLES, composed), make_answers(plan, SAMPLES, alone), strict=True
    ):
        assert own.answer is not None
        assert other.answer is not None
        name = own.sample.id
        sides = (refer_to_answer(own.answer, name), refer_to_answer(other.answer, name))
        pairs.append(AnswerPair(name, refer_to_question(own.sample, store), *sides))
    judge = runner(store, "judge", SmallJudge(lambda _, __: "A"))
    judge_pairs(pairs, BattleRules(seed=plan.seed), judge)
