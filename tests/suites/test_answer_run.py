"""Suites of interleaved answers, measured: battles against accepted answers, and what is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from pytest_cepbench.artifacts.outcome import EVEN, Winner
from pytest_cepbench.chains.answers.answer_plan import BattleRules
from pytest_cepbench.chains.answers.battles import OrderedVerdict, PairOutcome
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError, MeasurementError, UnscoredError
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.measures.battle_measures import _sight_of_judge
from pytest_cepbench.store import Store
from pytest_cepbench.store.answers import get_answers
from tests.optional import known
from tests.suites.answers import ANSWERS, HEAD, PIPELINE, WORSE, MeasuredSuite, prepare


@pytest.fixture(scope="module")
def accepted_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Accepted answers, and those of a worse model, which nobody has judged; only to be copied."""
    root = tmp_path_factory.mktemp("accepted")
    with Store(root / "store") as store:
        prepare(root, store).accept()
        prepare(root, store, model=WORSE).answers()
    return root


@pytest.fixture
def accepted(tmp_path: Path, accepted_root: Path) -> Iterator[Store]:
    """The store of a copy, with baselines beside it."""
    shutil.copytree(accepted_root, tmp_path, dirs_exist_ok=True)
    with Store(tmp_path / "store") as opened:
        yield opened


def test_a_worse_model_loses_its_battles(tmp_path: Path, accepted: Store) -> None:
    """Answers of the accepted model against themselves score one half, and no battle is fought.
    Accepting a worse one turns the tables: what was accepted before is an improvement then.
    """
    again = prepare(tmp_path, accepted)
    assert again.judge().verdict is Verdict.HELD
    assert (again.measure().value, again.inputs("judge"), again.inputs("interleaver")) == (
        0.5,
        0,
        0,
    )
    worse = prepare(tmp_path, accepted, model=WORSE)
    assert worse.judge().verdict is Verdict.REGRESSED
    assert (worse.judge("overall-truth").difference or 0.0) < -0.1
    lost = worse.measure()
    assert (lost.value < 0.3, worse.inputs("judge") > 0) == (True, True)
    worse.accept()
    better = prepare(tmp_path, accepted)
    assert better.judge().verdict is Verdict.IMPROVED
    assert better.measure().value == pytest.approx(1 - lost.value)
    assert better.inputs("judge") == 0


def test_equal_answers_of_other_weights_hold(tmp_path: Path, store: Store) -> None:
    """A writer that writes what the accepted one did needs no judge."""
    before = prepare(tmp_path, store, PIPELINE, "shapes:", role="writer")
    before.accept()
    same = prepare(tmp_path, store, PIPELINE, "shapes:?stop=0.0000001", role="writer")
    assert same.run.model_record()["identity"] != before.run.model_record()["identity"]
    judgement = same.judge()
    assert (judgement.verdict, same.inputs("judge")) == (Verdict.HELD, 0)
    assert "every answer is the one that was accepted" in judgement.statements


def test_the_anchor_is_battled_too(tmp_path: Path, accepted: Store) -> None:
    """Its own answers, by verdicts of their own."""
    prepare(tmp_path, accepted).accept(["overall-win_rate"], anchor=True)
    worse = prepare(tmp_path, accepted, model=WORSE)
    worse.accept()
    again = prepare(tmp_path, accepted, model="shapes:?miss=0.3&move=0.01")
    judgement = again.judge()
    assert judgement.since_anchor is not None
    assert judgement.verdict is Verdict.REGRESSED
    assert judgement.since_anchor.baseline_value == 0.5
    assert again.measure().anchor_scores != again.measure().scores


# -- answers that are gone -------------------------------------------------------------------------


def test_without_the_accepted_answers_nothing_is_compared(tmp_path: Path, accepted: Store) -> None:
    """On another machine: the case says how many are missing, and what brings them."""
    answers = prepare(tmp_path, accepted).answers()
    with Store(tmp_path / "empty") as empty:
        worse = prepare(tmp_path, empty, model=WORSE)
        lacking = len(set(answers.values()) - set(worse.answers().values()))
        for case_id in ("overall-win_rate", "overall-judge_failures"):
            judgement = worse.judge(case_id)
            assert judgement.verdict is Verdict.INCOMPARABLE
            (reason,) = [text for text in judgement.reasons if "answers" in text]
            # All but those that the candidate gave too.
            assert f"{lacking} of 20 answers of the baseline are not in the store" in reason
            assert "--cep-store" in reason
            assert "`cepbench store import`" in reason
        assert worse.inputs("judge") == 0
        # The numbers that need no battle are compared all the same.
        assert (worse.judge("overall-truth").difference or 0.0) < 0


@pytest.mark.parametrize("harm", ["deleted", "damaged"])
def test_an_accepted_answer_that_lost_an_image_cannot_be_battled(
    tmp_path: Path, accepted: Store, harm: str
) -> None:
    """Whether that is seen before or when the judge is to see it: incomparable, with the count."""
    worse = prepare(tmp_path, accepted, model=WORSE)
    lost, _, digest = _battled_answer(prepare(tmp_path, accepted), worse)
    path = accepted.artifact_path(digest)
    path.unlink() if harm == "deleted" else path.write_bytes(b"no image")
    accepted.artifact_cache.clear()
    for case_id in ("overall-win_rate", "overall-judge_failures"):
        judgement = worse.judge(case_id)
        assert judgement.verdict is Verdict.INCOMPARABLE
        assert any(f"of the baseline are not in the store ({lost}" in r for r in judgement.reasons)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["deleted", "damaged"])
@pytest.mark.parametrize("case_id", ["overall-win_rate", "overall-truth"])
def test_a_candidates_lost_image_is_made_again(
    tmp_path: Path, accepted: Store, harm: str, case_id: str
) -> None:
    """For the judge and for the truth: the same scores as if nothing had happened."""
    answered = prepare(tmp_path, accepted, model=WORSE)
    sample, digest, _ = _battled_answer(prepare(tmp_path, accepted), answered)
    path = accepted.artifact_path(digest)
    path.unlink() if harm == "deleted" else path.write_bytes(b"no image")
    accepted.artifact_cache.clear()
    again = prepare(tmp_path, accepted, model=WORSE)
    again.measure(case_id)
    assert again.inputs("interleaver") == 1
    assert again.answers()[sample] == answered.answers()[sample]
    assert accepted.get_artifact(digest) is not None


def _battled_answer(accepted: MeasuredSuite, other: MeasuredSuite) -> tuple[str, str, str]:
    """A sample whose answers differ, and an image that only the candidate's, the baseline's has."""
    theirs, ours = accepted.answers(), other.answers()
    store = other.pool.store
    answers = get_answers(store, [*theirs.values(), *ours.values()])
    shared = [set(answers[digest].images) for digest in answers]
    for sample in sorted(theirs):
        own, its = answers[ours[sample]].images, answers[theirs[sample]].images
        only = [[d for d in images if sum(d in each for each in shared) == 1]
                for images in (own, its)]  # fmt: skip
        if all(only):
            return sample, only[0][0], only[1][0]
    raise AssertionError


# -- judges ----------------------------------------------------------------------------------------


def test_a_changed_judge_or_order_makes_win_rates_incomparable(
    tmp_path: Path, accepted: Store
) -> None:
    """Of the judge's own numbers alone; truth needs none."""
    changed = prepare(tmp_path, accepted, model=WORSE, roles={"judge": "shapes:?first=0.2"})
    judgement = changed.judge()
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert any(reason.startswith("judge: baseline") for reason in judgement.reasons)
    assert (changed.judge("overall-truth").difference or 0.0) < 0
    balanced = prepare(tmp_path, accepted, ANSWERS + '[arena]\norder = "balanced"\n', WORSE).judge()
    assert balanced.verdict is Verdict.INCOMPARABLE
    assert any(reason.startswith("battles: ") for reason in balanced.reasons)


def test_failures_of_the_judge_are_counted(tmp_path: Path, store: Store) -> None:
    """A share of the verdicts of the same battles, which fails the case where none is tolerated."""
    text = ANSWERS.replace('judge = "shapes:"', 'judge = "python:tests.suites.answers:SilentJudge"')
    prepare(tmp_path, store, text).accept()
    worse = prepare(tmp_path, store, text, WORSE)
    judgement = worse.judge("overall-judge_failures")
    assert (judgement.baseline_value, judgement.verdict) == (0.0, Verdict.REGRESSED)
    assert 0.0 < worse.measure("overall-judge_failures").value < 0.6
    with pytest.raises(UnscoredError, match=r"the judge .* failed at 5 of 20 .*5 no-verdict"):
        worse.measure()


def test_reference_answers_are_battled(tmp_path: Path, store: Store) -> None:
    """Where the suite says so: the right answer ties with them, a worse one loses.

    Of ties alone nobody knows whether the judge would see a loss.
    """
    text = ANSWERS + '[arena]\nagainst = "gold"\n'
    right, worse = prepare(tmp_path, store, text), prepare(tmp_path, store, text, WORSE)
    assert right.measure().value == 0.5
    assert worse.measure().value < 0.3
    sample = next(s for s in worse.run.dataset.samples if any(step.image for step in s.gold))
    shown = known(worse.run.show(worse.cases["overall-win_rate"], sample.id))
    assert shown.opponent == "reference"
    assert [bool(step.image) for step in shown.opposing] == [bool(s.image) for s in sample.gold]
    assert right.measure().answers == {}
    worse.accept()
    again = prepare(tmp_path, store, text).judge()
    assert (again.baseline_value, again.verdict) == (worse.measure().value, Verdict.INCONCLUSIVE)
    assert "different answers are ties to it" in again.reasons[0]
    assert again.difference == pytest.approx(0.5 - worse.measure().value)


@pytest.mark.parametrize(
    ("text", "case_id", "message"),
    [
        ('[answer]\n[arena]\nagainst = "gold"\n[metrics.win_rate]\n', "overall-win_rate", "battle"),
        ("[answer]\n[metrics.step_gap]\n", "overall-step_gap", "number of steps is to be met"),
        ('[answer]\nsteps = "gold"\n[metrics.failures]\n', "overall-failures", "is to be told"),
    ],
)
def test_reference_answers_that_are_not_there_are_missed(
    tmp_path: Path, store: Store, text: str, case_id: str, message: str
) -> None:
    """Never a won battle, a gap of zero steps or a number of zero."""
    head = HEAD.replace("shapes-arena", "python:tests.suites.answers:other_gold")
    head = head.replace("options = { samples_per_category = 2 }\n", "")
    roles = '[roles]\ninterleaver = "shapes:"\njudge = "shapes:"\n'
    suite = prepare(tmp_path, store, head + text + roles)
    with pytest.raises(DatasetError, match=f"has no reference answer.*{message}"):
        suite.measure(case_id)


def test_other_reference_answers_are_incomparable(tmp_path: Path, store: Store) -> None:
    """Where they are battled, all of them; else their number of steps, where that counts."""
    head = HEAD.replace("shapes-arena", "python:tests.suites.answers:other_gold")
    roles = '[roles]\ninterleaver = "shapes:?miss=0.3"\njudge = "shapes:"\n'
    metrics = "[metrics.win_rate]\n[metrics.step_gap]\n[metrics.failures]\n"
    for number, (answers, steps, reads) in enumerate((
        ('[answer]\n[arena]\nagainst = "gold"\n', "other", {"win_rate"}),
        ('[answer]\n[arena]\nagainst = "gold"\n', "more", {"win_rate", "step_gap"}),
        ('[answer]\nsteps = "gold"\n', "other", set()),
        ('[answer]\nsteps = "gold"\n', "more", {"win_rate", "step_gap", "failures"}),
    )):  # fmt: skip

        def asked(
            gold: str, text: str = answers, at: Path = tmp_path / str(number)
        ) -> MeasuredSuite:
            options = head.replace("samples_per_category = 2", f'steps = "{gold}"')
            return prepare(at, store, options + text + metrics + roles)

        asked("same").accept()
        changed = asked(steps)
        incomparable = {
            case.key.metric
            for case in changed.cases.values()
            if case.key.part == "overall" and changed.judge(case.id).verdict is Verdict.INCOMPARABLE
        }
        assert incomparable == reads


def test_nothing_answered_is_no_measurement(tmp_path: Path, store: Store) -> None:
    """A model that answers nothing has no win rate; the failure rate says it too."""
    suite = prepare(tmp_path, store, model="shapes:?stop=1")
    with pytest.raises(MeasurementError, match="not one of 20 questions was answered: empty-text"):
        suite.measure()
    failures = suite.measure("overall-failures")
    assert (failures.value, failures.failures) == (1.0, {"empty-text": 20})


def test_an_image_that_a_server_did_not_draw_is_an_error(tmp_path: Path, store: Store) -> None:
    """Not an answer without it: nothing is known of the model, and the next run asks again."""
    roles = '[roles]\nwriter = "shapes:"\ngenerator = "python:tests.suites.answers:BusyGenerator"\n'
    suite = prepare(tmp_path, store, f"{HEAD}[answer]\n[metrics.no_image]\n{roles}")

    with pytest.raises(MeasurementError, match=r"an image of the answer to .* 503\. Run again"):
        suite.measure("overall-no_image")


def _dull(way: str, rules: str = "", questions: int = 60) -> str:
    """Questions, judged by a judge that tells little apart, and nothing but the win rate."""
    head = HEAD.replace("samples_per_category = 2", f"samples_per_category = {questions // 10}")
    return (
        f'{head}[answer]\n[roles]\ninterleaver = "shapes:"\n'
        f'judge = "python:tests.suites.answers:DullJudge?way={way}"\n'
        '[metrics.win_rate]\ntolerance = 0.05\nparts = "overall"\n'
        f"[arena]\n{rules}\n"
    )


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that keeps the answers of the tests of judges."""
    with Store(tmp_path_factory.mktemp("answered") / "store") as opened:
        yield opened


@pytest.mark.parametrize(
    ("way", "rules", "questions", "reason"),
    [
        ("ties", "", 20, "15 of 15 different answers are ties to it"),
        ("ties", 'against = "gold"', 20, "different answers are ties to it"),
        ("content", "", 20, "15 of 15 different answers are ties to it"),
        ("coarse", "", 60, "50 of 52 different answers are ties to it"),
        ("first", "", 20, "15 of its verdicts turn with the order of the answers, and 0 stand"),
        (
            "first",
            'order = "balanced"',
            60,
            "42 of its 52 verdicts are for the answer that was shown",
        ),
    ],
)
def test_a_judge_that_tells_nothing_apart_holds_nothing(
    tmp_path: Path, answered: Store, way: str, rules: str, questions: int, reason: str
) -> None:
    """A model that is much worse is not held, and the first reason says that the judge is blind."""
    text = _dull(way, rules, questions)
    prepare(tmp_path, answered, text).accept()
    judgement = prepare(tmp_path, answered, text, WORSE).judge()
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.reasons[0].startswith("the judge cannot see a drop: ")
    assert reason in judgement.reasons[0]
    assert judgement.needed is None


def test_the_places_of_thousands_of_verdicts_are_counted() -> None:
    """Chance does not explain them, however small it is; as many in either place are no reason."""
    names, rules = [f"q{i}" for i in range(3000)], BattleRules("balanced", 0)
    parts = {"overall": [Sample(name, ("task",)) for name in names]}

    def sight(*winners: Winner) -> Blindness | None:
        places = enumerate(zip(names, cycle(winners), strict=False))
        given = {n: PairOutcome(1.0, [OrderedVerdict(i % 2 == 0, won)]) for i, (n, won) in places}
        return _sight_of_judge(given, parts, rules, EVEN)[0]

    assert "3000 of its 3000 verdicts are for the answer" in known(sight("A")).reason
    assert sight("A", "A", "B", "B") is None


def test_a_few_ties_hide_no_more_than_is_tolerated(tmp_path: Path, answered: Store) -> None:
    """Equal answers need no judge, so it is held where the others could not lose enough. What is
    equal to the last accepted answers is not held where there are only ties against the anchor's.
    """
    text = _dull("ties")
    prepare(tmp_path, answered, text).accept()
    few = prepare(tmp_path, answered, text, "shapes:?miss=0.01")
    judgement = few.judge()
    assert few.inputs("judge") > 0
    assert judgement.verdict is Verdict.HELD
    assert any("the judge cannot see a drop" in statement for statement in judgement.statements)
    prepare(tmp_path, answered, text).accept(anchor=True)
    prepare(tmp_path, answered, text, WORSE).accept()
    judgement = prepare(tmp_path, answered, text, WORSE).judge()
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.reasons[0].startswith("anchor: the judge cannot see a drop: ")


# -- one identity ----------------------------------------------------------------------------------


def test_one_identity_that_answers_in_two_ways_is_battled(tmp_path: Path, accepted: Store) -> None:
    """Other answers are no accepted ones, whatever the baseline says of the model."""
    worse = prepare(tmp_path, accepted, model=WORSE)
    identity = worse.run.model_record()["identity"]
    prepare(tmp_path, accepted).accept(["overall-win_rate"], identity=identity)
    judgement = worse.judge()
    assert judgement.verdict is Verdict.REGRESSED
    (warning,) = judgement.warnings
    assert warning.startswith("one identity answered in two ways: 15 of 20 answers are not the ")
    assert identity in warning
    assert "a python: model" in warning


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [(2, Verdict.HELD), (3, Verdict.INCONCLUSIVE), (0, Verdict.INCONCLUSIVE)],
)
def test_answers_that_are_drawn_anew_by_another_processor_are_the_accepted_ones(
    tmp_path: Path, accepted: Store, levels: int, verdict: Verdict
) -> None:
    """Equal texts, and images of one size, no number of which is more than two levels away."""
    redrawn = f"python:tests.suites.answers:RedrawnInterleaver?levels={levels}"
    suite = prepare(tmp_path, accepted, model=redrawn)
    judgement = suite.judge()
    assert judgement.verdict is verdict
    said = any("but for rounding: other arithmetic" in s for s in judgement.statements)
    assert said is (verdict is Verdict.HELD)
    blind = any("20 of 20 different answers are ties" in reason for reason in judgement.reasons)
    assert blind is not said
