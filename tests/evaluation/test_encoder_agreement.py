"""Several encoders have the word on one case: verdicts, baselines, errors, and the run around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import SuiteError
from pytest_cepbench.gate.series import read_scores
from pytest_cepbench.report.totals import vote_lines
from tests.evaluation.gated_project import GatedProject, verdicts
from tests.evaluation.several_encoders import HERE, metrics

N = 30


def project(path: Path, *gains: float, n: int = N, **rest: Any) -> GatedProject:
    """Baselines of a describer that loses nothing, seen by encoders of these gains."""
    return GatedProject.make(path / "project", n=n, rest=metrics(*gains, **rest))


@pytest.fixture(scope="module")
def two_see(tmp_path_factory: pytest.TempPathFactory) -> GatedProject:
    """Two encoders that see what is lost, and one that sees a gain in it."""
    return project(tmp_path_factory.mktemp("two"), 1, 1, -1)


def test_two_of_three_make_a_regression(two_see: GatedProject) -> None:
    """The joint case fails the run; its members have numbers and cannot fail it."""
    result = two_see.gate(drop=0.05, spread=0.01)

    assert verdicts(result) == {
        "overall-gc-encoder": "regressed",
        "overall-gc-eye1": "regressed",
        "overall-gc-eye2": "improved",
        "overall-gc": "regressed",
    }
    joint = result["scored/overall/gc"]
    assert not result.passed
    assert [case.metric for case in result.cases if case.primary] == ["gc"]
    assert joint.alpha == pytest.approx(0.05)
    assert joint.label == "GC@1 [2 of 3 encoders]"
    assert [vote.verdict for vote in joint.votes] == ["regressed", "regressed", "improved"]
    assert [vote.metric for vote in joint.votes] == ["gc-encoder", "gc-eye1", "gc-eye2"]
    assert joint.reasons == ["2 of 3 encoders regressed, and 2 are needed"]
    assert joint.notes[0].startswith("encoder: regressed, 0.7503, -0.0497 [")
    own = result["scored/overall/gc-encoder"]
    vote = joint.votes[0]
    assert (vote.low, vote.difference) == (own.low, own.difference)
    assert own.high is not None
    assert vote.high is not None
    assert vote.high > own.high  # at half of alpha: one more of three may err

    (line,) = vote_lines(result.cases)
    assert line.startswith(
        "encoders of scored overall GC@1 [2 of 3 encoders], each at the level that decides: "
        "encoder: regressed, 0.7503, -0.0497 ["
    )
    assert "eye2: improved, " in line


@pytest.mark.slow
def test_one_of_three_is_no_regression_and_no_pass(tmp_path: Path) -> None:
    """An encoder alone is heard: the case is inconclusive and says who lost."""
    alone = project(tmp_path, 1, -1, -1)
    result = alone.gate(drop=0.05, spread=0.01)

    joint = result["scored/overall/gc"]
    assert joint.verdict == "inconclusive"
    assert joint.reasons == ["1 of 3 encoders regressed, and 2 are needed"]
    assert result.passed
    assert not alone.gate({"inconclusive": "fail"}, drop=0.05, spread=0.01).passed
    assert not alone.gate({"gate": "noninferiority"}, drop=0.05, spread=0.01).passed


def test_it_holds_where_all_hold(two_see: GatedProject) -> None:
    """Without a loss every encoder excludes one."""
    result = two_see.gate(drop=0.0005, spread=0.004)

    assert result["scored/overall/gc"].verdict == "held"
    assert result.passed
    assert vote_lines(result.cases) == []


@pytest.mark.slow
def test_one_encoder_in_doubt_is_enough_for_doubt(tmp_path: Path) -> None:
    """Held needs all of them: one that sees ten times the scatter cannot exclude a loss."""
    seen = project(tmp_path, 1, 1, 10)
    result = seen.gate(drop=0, spread=0.006)

    by_case = verdicts(result)
    assert (by_case["overall-gc-encoder"], by_case["overall-gc-eye1"]) == ("held", "held")
    assert by_case["overall-gc-eye2"] == by_case["overall-gc"] == "inconclusive"
    assert result["scored/overall/gc"].reasons == [
        "a drop larger than tolerated is not excluded by eye2"
    ]


def test_a_missing_baseline_of_one_encoder_fails_the_case(
    two_see: GatedProject, tmp_path: Path
) -> None:
    """No majority makes up for what was not compared."""
    lacking = two_see.copy(tmp_path / "lacking")
    lacking.baseline("overall-gc-eye2").unlink()
    result = lacking.gate(drop=0.0005, spread=0.004)

    assert result["scored/overall/gc"].verdict == "no-baseline"
    assert result["scored/overall/gc"].reasons == [
        "eye2: no-baseline: no baseline has been accepted for this case"
    ]
    assert not result.passed


def test_constant_vectors_of_one_encoder_are_an_error(tmp_path: Path) -> None:
    """An encoder that sees nothing agrees with everything; it is refused, not counted."""
    seen = project(tmp_path, 1, 1, 1)
    suite = seen.path / "suite.toml"
    suite.write_text(suite.read_text().replace("gain=1&mark=2", "blind=yes"))
    result = seen.gate()

    joint = result["scored/overall/gc"]
    assert joint.verdict == "error"
    assert "blind=yes" in joint.reasons[0]
    assert [vote.encoder for vote in joint.votes] == ["encoder", "eye1", "eye2"]
    assert not result.passed
    assert not seen.gate(snapshot_update=True).passed


@pytest.mark.slow
def test_one_model_under_two_names_has_one_vote(tmp_path: Path) -> None:
    """`--encoder` can make two of them one; then two votes would be one opinion."""
    seen = project(tmp_path, 1, 1, 1)
    result = seen.gate({"encoder": f"{HERE}?gain=1&mark=1"})

    joint = result["scored/overall/gc"]
    assert joint.verdict == "error"
    assert "encoders 'encoder' and 'eye1' are the same model" in joint.reasons[0]


@pytest.mark.slow
def test_the_suite_as_a_whole_counts_the_joint_case(tmp_path: Path) -> None:
    """Not its members: what one encoder sees alone is not the suite's."""
    pooled = project(tmp_path, 1, 1, -1, gate="agree = 2\npooled = true\n")
    result = pooled.gate(drop=0.05, spread=0.01)
    whole = result["scored/suite/verdict"]
    assert whole.verdict == "regressed"
    assert whole.alpha == pytest.approx(0.05)
    assert whole.reasons == ["overall/gc: 2 of 3 encoders agree"]
    assert pooled.gate(drop=0.0005, spread=0.004)["scored/suite/verdict"].verdict == "held"


@pytest.mark.slow
def test_plain_rules_are_counted_too(two_see: GatedProject) -> None:
    """Under threshold each encoder says held or regressed by its mean alone."""
    result = two_see.gate({"gate": "threshold"}, drop=0.02)
    assert result["scored/overall/gc"].verdict == "regressed"
    assert result["scored/overall/gc"].alpha is None


@pytest.mark.slow
def test_a_series_gives_each_encoder_its_share(two_see: GatedProject, tmp_path: Path) -> None:
    """The record has the encoders' cases, settled, at the alpha of the joint case."""
    copy = two_see.copy(tmp_path / "series")
    result = copy.gate({"series": "one"}, drop=0.2, spread=0.01)
    assert result["scored/overall/gc"].verdict == "regressed"
    text = (copy.path / "baselines" / "series" / "one.jsonl").read_text()
    settled = [line for line in text.splitlines() if '"verdict":"regressed"' in line]
    assert len(settled) == 2
    assert all("overall/gc-" in line for line in settled)


@pytest.mark.slow
def test_a_reward_that_rises_alone_is_warned_of(tmp_path: Path) -> None:
    """Over a series in which the reward's encoder sees gains where the others see losses."""
    rest = metrics(
        1, -1, gate='agree = 2\nreward = "eye1"\nheld_out = ["encoder"]\ntolerance = 0.2\n'
    )
    seen = GatedProject.make(tmp_path / "project", n=N, rest=rest)
    warned = []
    for step in range(5):
        drop = 0.03 * step
        result = seen.gate({"series": "one"}, drop=drop, spread=0.02, chance=step)
        joint = result["scored/overall/gc"]
        warned.append(bool(joint.warnings))
        assert result.passed
    assert warned[:2] == [False, False]
    assert warned[-1]
    assert "under eye1 (the reward's encoder) rises by" in joint.warnings[0]
    assert "under encoder (held out) falls by" in joint.warnings[0]
    assert [vote.held_out for vote in joint.votes] == [True, False]
    assert [vote.reward for vote in joint.votes] == [False, True]


@pytest.mark.slow
def test_checkpoints_that_are_accepted_are_in_the_series_of_the_reward(tmp_path: Path) -> None:
    """A training that accepts its first checkpoint, or every one, is watched from the first on."""
    rest = metrics(1, -1, gate='agree = 2\nreward = "eye1"\ntolerance = 0.2\n')
    seen = GatedProject.make(tmp_path / "project", n=N, rest=rest)
    looks = [
        {"drop": 0.03 * step, "spread": 0.02, "chance": step, "snapshot_update": step < 2}
        for step in range(5)
    ]
    results = [seen.gate({"series": "one"}, **look) for look in looks]

    records = read_scores(seen.path / "baselines" / "series" / "one.jsonl")
    assert sorted({record.look for record in records}) == [1, 2, 3, 4, 5]
    assert {record.encoder for record in records} == {"encoder", "eye1"}
    assert {record.case for record in records} == {"scored/overall/gc"}
    warned = results[-1]["scored/overall/gc"].warnings
    assert warned[0].startswith("from checkpoint 1 to 5 of the series")


@pytest.mark.slow
def test_a_held_out_encoder_is_not_the_rewards_under_another_name(tmp_path: Path) -> None:
    """Specs that differ in what changes no vector are one model all the same."""
    gate = 'agree = 2\nreward = "eye1"\nheld_out = ["other"]\n'
    rest = metrics(1, 1, gate=gate) + f"[metrics.s]\nencoder = {chr(34)}other{chr(34)}\n"
    rest = rest.replace("[encoders]\n", f'[encoders]\nother = "{HERE}?mark=1&gain=1"\n')
    seen = GatedProject.make(tmp_path / "project", n=N, rest=rest)
    joint = seen.gate()["scored/overall/gc"]
    assert joint.verdict == "error"
    assert (
        "gate.held_out: encoder 'other' is the same model as the reward's, 'eye1'"
        in (joint.reasons[0])
    )


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (metrics(1, 1, gate="agree = 3\n"), "gate.agree = 3: metric 'gc' has 2 encoders"),
        (metrics(1, 1, gate="agree = 0\n"), "gate.agree = 0: metric 'gc' has 2 encoders"),
        (metrics(1, gate=""), "encoders = ['encoder']: at least 2 different ones"),
        ("[metrics.gc]\n[gate]\nagree = 2\n", "no metric names several encoders"),
        (
            '[metrics.gc]\nencoders = ["encoder", "dino"]\n',
            "unknown encoder 'dino'",
        ),
        (
            metrics(1, 1, gate='reward = "eye"\n'),
            "gate.reward: unknown encoder 'eye'",
        ),
        (
            metrics(1, 1, gate='held_out = ["eye2"]\n'),
            "gate.held_out: unknown encoder 'eye2'",
        ),
        (
            metrics(1, 1, gate='reward = "eye1"\nheld_out = ["eye1"]\n'),
            "gate.held_out: encoder 'eye1' is the reward's",
        ),
        (
            f'[encoders]\na = "{HERE}"\n[metrics.gc]\n[gate]\nheld_out = ["a"]\n',
            "gate.held_out: encoder 'a' judges nothing",
        ),
        (
            f'[encoders]\na = "{HERE}"\n[metrics.gc]\n[gate]\nreward = "a"\n',
            "gate.reward: no metric names the encoder 'a' beside another one",
        ),
    ],
)
def test_a_mistake_in_the_settings_is_one_sentence(tmp_path: Path, rest: str, message: str) -> None:
    """Too many votes, one encoder, unknown names, a reward that nothing else is seen beside."""
    with pytest.raises(SuiteError) as caught:
        GatedProject.make(tmp_path / "project", n=4, rest=rest)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
