"""Suite files that ask for answers: what is refused in them, and who plays which part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains.answers.answer_plan import AnswerPlan, BattleRules
from pytest_cepbench.errors import SpecError, SuiteError, SuiteNotApplicableError
from pytest_cepbench.measures.measure_registry import make_answer_measures
from pytest_cepbench.suites import Assignments, RoleChoices
from pytest_cepbench.suites.role_assignment import assign_models
from tests.datasets.files import put
from tests.plugin.project import SHAPES
from tests.suites.answers import HEAD
from tests.suites.test_role_assignment import specs_of
from tests.suites.world import read_suite

METRICS = "[metrics.win_rate]\n[metrics.failures]\n"

JUDGE = 'judge = "shapes:"\n'


# -- the file --------------------------------------------------------------------------------------


def test_every_word_is_read(tmp_path: Path) -> None:
    """Of the answers, of their battles, and of the prompts. What is left out has the documented
    default: as many steps as the model likes, ten at most; both orders of every battle.
    """
    suite = read_suite(tmp_path, HEAD + "[answer]\n" + METRICS)
    assert suite.answer_plan == AnswerPlan("free", 10, 0, "", "{step}", "{step}")
    assert suite.battle_rules == BattleRules("both", 0)
    assert (suite.plans, suite.seeds) == ({}, 1)
    prompts = 'system = "s"\nimage = "i {step}"\nedit = "e {step} {question}"\n'
    answer = "[answer]\nsteps = 'gold'\nmost = 5\nseed = 7\nseeds = 2\n"
    arena = '[arena]\nagainst = "gold"\norder = "balanced"\nseed = 4\n'
    suite = read_suite(tmp_path, HEAD + prompts + answer + arena + METRICS)
    assert suite.answer_plan == AnswerPlan("gold", 5, 7, "s", "i {step}", "e {step} {question}")
    assert suite.battle_rules == BattleRules("balanced", 4)
    assert (suite.table.arena.against, suite.seeds) == ("gold", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[answer]\n[chain]\niterations = 2\n" + METRICS,
         r"\[chain\] and \[answer\] are two kinds of suites: give one"),
        ('[answer]\nsteps = "golden"\n' + METRICS, "golden.* Did you mean .*gold"),
        ("[answer]\nmost = 0\n" + METRICS, "answer.most = 0: 1 to 10 steps are expected"),
        ("[answer]\nmost = 11\n" + METRICS, "answer.most = 11: 1 to 10 steps are expected"),
        ("[answer]\nseeds = 0\n" + METRICS, "answer.seeds = 0: 1 to 10,000 are"),
        ('image = "draw"\n[answer]\n' + METRICS, "prompts.image = 'draw' does not hold {step}"),
        ('edit = "{question}"\n[answer]\n' + METRICS, "prompts.edit = .* does not hold {step}"),
        ('[answer]\n[arena]\norder = "random"\n' + METRICS, "random"),
        ("[answer]\n[metrics.gc]\n", "unknown metric 'gc'. Known: .*win_rate"),
        ("[answer]\n[metrics.mine]\nkind = \"gc\"\n", "unknown metric 'gc'. Known: .*win_rate"),
        ('[answer]\n[metrics.truth]\ncriterion = "beauty"\n', "beauty"),
        ("[answer]\n[metrics]\n", "no metric under .*known: .*win_rate"),
        ('describe = "d"\n' + METRICS, "unknown metric 'win_rate'. Known: .*gc"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    """In one line with the file and the key; chains and answers have metrics of their own."""
    with pytest.raises(SuiteError, match=message) as caught:
        read_suite(tmp_path, HEAD + text)
    assert str(caught.value).startswith("suite file ")
    assert "\n" not in str(caught.value)


def test_failures_of_a_judge_are_those_of_a_win_rate(tmp_path: Path) -> None:
    """Without one there is no battle whose verdicts could be counted."""
    suite = read_suite(tmp_path, HEAD + "[answer]\n[metrics.judge_failures]\n")
    with pytest.raises(SuiteError, match=r"judge_failures counts .* add \[metrics.win_rate\]"):
        make_answer_measures(suite.metrics, suite.name, "accepted")
    assert make_answer_measures(suite.metrics, suite.name, "gold")["judge_failures"].judged


# -- the models ------------------------------------------------------------------------------------


def _assign(tmp_path: Path, own: str = "", metrics: str = METRICS, **choices: Any) -> Assignments:
    text = f"{HEAD}[answer]\n[roles]\n{own}{metrics}"
    assignments, _ = assign_models(read_suite(tmp_path, text), RoleChoices(**choices))
    return assignments


def test_a_model_that_writes_and_describes_plays_by_the_suite(tmp_path: Path) -> None:
    """The writer where answers are asked for, the describer where chains are."""
    model = "python:tests.suites.test_answer_suites:Talker"
    answering = _assign(tmp_path, 'generator = "shapes:"\n' + JUDGE, model=model)
    assert (answering.under_test, answering.subject) == ("writer", model)
    assert specs_of(answering) == {"writer": model, "generator": "shapes:", "judge": "shapes:"}
    chains, _ = assign_models(read_suite(tmp_path, SHAPES), RoleChoices(model))
    assert (chains.under_test, chains.subject) == ("describer", model)


class Talker:
    """A model that describes images and answers questions with a text."""

    fingerprint = "talker/1"

    def describe(self, images: Any, _: str, __: Any) -> Any:
        """One text for each image."""
        return ["a text"] * len(images)

    def write(self, questions: Any, _: str, __: Any) -> Any:
        """One text for each question."""
        return ["a text"] * len(questions)


def test_a_pipeline_is_named_on_the_command_line(tmp_path: Path) -> None:
    """It goes before the suite's own interleaver; what is named as --model is under test. A writer
    alone has no part where an interleaver answers: a suite without a generator does not concern it,
    until one is named that draws its steps.
    """
    own = 'interleaver = "shapes:?miss=0.1"\n' + JUDGE
    parts = {"writer": "shapes:?miss=0.2", "generator": "shapes:?move=0.2"}
    composed = _assign(tmp_path, own, roles=parts)
    assert specs_of(composed) == {**parts, "judge": "shapes:"}
    assert composed.under_test == "writer+generator"
    edited = {**parts, "editor": "python:tests.suites.test_answer_suites:Talker"}
    assert list(specs_of(_assign(tmp_path, own, roles=edited))) == [
        "writer", "generator", "editor", "judge",
    ]  # fmt: skip
    writer = edited["editor"]
    with pytest.raises(SuiteNotApplicableError, match=r"no generator .* --generator=SPEC"):
        _assign(tmp_path, own, model=writer)
    drawn = _assign(tmp_path, own, model=writer, roles={"generator": "shapes:"})
    assert (drawn.under_test, list(specs_of(drawn))) == ("writer", ["writer", "generator", "judge"])


def test_one_part_of_a_pipeline_is_under_test(tmp_path: Path) -> None:
    """`--cep-role` says which; the others are held fixed. An interleaver that is named goes before
    the suite's own pipeline, and needs neither writer nor generator; only battles need a judge.
    """
    own = 'writer = "shapes:"\ngenerator = "shapes:"\n' + JUDGE
    for role in ("writer", "generator"):
        assignments = _assign(tmp_path, own, model="shapes:?miss=0.2", role=role)
        assert assignments.under_test == role
        assert specs_of(assignments)[role] == "shapes:?miss=0.2"
        assert len(assignments.roles) == 3
    counted = _assign(tmp_path, 'interleaver = "shapes:"\n', "[metrics.truth]\n")
    assert list(counted.roles) == ["interleaver"]
    for choices in ({"roles": {"interleaver": "shapes:?miss=0.2"}}, {"model": "shapes:?miss=0.2"}):
        assignments = _assign(tmp_path, own, **choices)
        assert (assignments.under_test, assignments.subject) == ("interleaver", "shapes:?miss=0.2")
        assert list(assignments.roles) == ["interleaver", "judge"]


@pytest.mark.parametrize(
    ("own", "choices", "message"),
    [
        ("", {}, "give an --interleaver=SPEC, or a --writer=SPEC with a --generator=SPEC"),
        (JUDGE, {"roles": {"generator": "shapes:"}}, "give an --interleaver=SPEC, or a --writer"),
        (JUDGE, {"roles": {"writer": "shapes:"}}, "needs a generator: give one with --generator="),
        ('interleaver = "shapes:"\n', {}, "needs a judge: give one with --judge="),
    ],
)
def test_models_that_are_missing_are_named(
    tmp_path: Path, own: str, choices: dict[str, Any], message: str
) -> None:
    """With the options that name them."""
    with pytest.raises(SpecError, match=message):
        _assign(tmp_path, own, **choices)


def test_a_model_without_a_part_in_the_suite_skips_it(tmp_path: Path) -> None:
    """An encoder has nothing to do with answers, nor have chains that were made elsewhere."""
    own = 'interleaver = "shapes:"\n' + JUDGE
    with pytest.raises(SuiteNotApplicableError, match="the encoder under test has no role"):
        _assign(tmp_path, own, model="shapes:", role="encoder")
    chains = put(tmp_path / "chains", "a_0.png", "a_1.png")
    with pytest.raises(SuiteNotApplicableError, match="brings chains, and suite 'arena' asks for"):
        _assign(tmp_path, own, model=f"replay:{chains}?layout=genception")
