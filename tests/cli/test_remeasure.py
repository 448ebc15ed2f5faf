"""`cepbench accept --remeasure`: what becomes the baseline is not the score that was chosen by."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import pytest

from pytest_cepbench.gate import (
    CaseKey,
    FreshMeasurement,
    Measurement,
    Policy,
    Verdict,
    judge,
    load_baseline,
    record_of,
)
from pytest_cepbench.gate.baseline import anchor_path, baseline_path, scores_digest
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from tests.cli import doctor_models
from tests.cli.conftest import Ended, Home
from tests.cli.reports import GATED, accept_by_hand, altered, result_of, write_report
from tests.plugin.project import TEST_MODULE, contents
from tests.studies.toy import write_suite

CHOSEN = "shapes:?miss=0.1"
OLDER = "shapes:?miss=0.12"
EXACT = "shapes:"
GUESSING = f"python:{doctor_models.__name__}:GuessingDescriber"

SMALL = GATED.replace("samples_per_category = 2", "samples_per_category = 1")
FIXED = SMALL.replace('generator = "shapes:"', 'generator = "python:fixed:Painter"')

PAINTER = """\
from pytest_cepbench.models.rule_based import ShapesGenerator
from pytest_cepbench.datasets.shapes import Degradation

class Painter(ShapesGenerator):
    fingerprint = "painter/1"
    seeded = False

    def __init__(self):
        super().__init__(Degradation())
"""
"""A generator that does not use its seed, so that a greedy describer's chains depend on no seed."""


def measure(
    home: Home, model: str, samples: int | None = None, seeds: int = 1
) -> tuple[FreshMeasurement, ...]:
    """Every case of the suite here, as its file is now. seeds: as `--cep-seeds` has it."""
    suite = load_suite(home.path / "suite.toml")
    assignments, measures = assign_models(suite, RoleChoices(model))
    dataset = load_data(suite, {}, samples).repeated(seeds)
    with Store(home.path / "other-store") as store:
        run = ChainRun(suite, dataset, assignments, measures, ModelPool(store))
        cases = list_cases(measures, suite.name, dataset, suite.table.groups)
        return tuple(run.measure(case) for case in cases)


def accept_again(home: Home, chosen: tuple[FreshMeasurement, ...], *argv: str) -> Ended:
    """The command on a report of what was measured."""
    write_report(home.path / "r.json", [result_of(measurement) for measurement in chosen])
    return home.command("accept", "r.json", "--reason=best of five", "--remeasure=.", *argv)


def accepted(home: Home, chosen: tuple[FreshMeasurement, ...]) -> Mapping[CaseKey, Measurement]:
    """The baselines of the cases."""
    root = home.path / "baselines"
    baselines = {}
    for measurement in chosen:
        path = baseline_path(root, measurement.key)
        baselines[measurement.key] = load_baseline(path.read_text(), measurement.key, path.name)
    return baselines


def seed_of(home: Home) -> int:
    """What the suite's file says."""
    return load_suite(home.path / "suite.toml").table.chain.seed


@pytest.fixture(autouse=True)
def _small_suite(home: Home) -> None:
    """A sample in each of the 8 categories."""
    write_suite(home.path, SMALL)


def test_the_baseline_is_measured_under_a_fresh_seed(home: Home) -> None:
    """It holds what the suite measures from then on, not what the report holds; both are shown."""
    chosen = measure(home, CHOSEN)
    ended = accept_again(home, chosen)
    fresh = {measurement.key: measurement for measurement in measure(home, CHOSEN)}
    baselines = accepted(home, chosen)
    assert ended.code == 0
    assert seed_of(home) not in (0, 1)
    for key, baseline in baselines.items():
        assert baseline.scores == record_of(fresh[key]).scores
        assert f"seed {seed_of(home)}" in baseline.identity["chain"]
        assert baseline.accepted["remeasured"] == (
            f"again under seed {seed_of(home)}, on the same samples"
        )
    (overall,) = [measurement for measurement in chosen if measurement.key.within == "overall/gc"]
    again = fresh[overall.key].value
    assert again != overall.value
    row = f"toy/overall/gc +{overall.value:.4f} +{again:.4f} +[-+]{abs(again - overall.value):.4f}"
    assert re.search(row, ended.out.partition("measured again under seed")[2])
    text = (home.path / "suite.toml").read_text()
    assert text == SMALL.replace("[chain]\n", f"[chain]\nseed = {seed_of(home)}\n")


@pytest.mark.slow
def test_later_runs_are_compared_under_the_same_conditions(home: Home) -> None:
    """The accepted checkpoint holds in a run of today's suite, sample by sample the same."""
    (home.path / "test_toy.py").write_text(TEST_MODULE)
    assert accept_again(home, measure(home, CHOSEN)).code == 0
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--model={CHOSEN}"],
        cwd=home.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "May ship: all 10 gating cases held" in ended.stdout
    assert "incomparable" not in ended.stdout


def test_several_measurements_leave_their_means_and_their_spread(home: Home) -> None:
    """The suite has the first of the seeds from then on; no other is needed in a run."""
    chosen = measure(home, CHOSEN)
    ended = accept_again(home, chosen, "--seeds=3")
    assert ended.code == 0
    first = seed_of(home)
    under = [record_of(m) for m in measure(home, CHOSEN)]
    for further in (1, 2):
        text = SMALL.replace("[chain]\n", f"[chain]\nseed = {first + further}\n")
        write_suite(home.path, text)
        under += [record_of(m) for m in measure(home, CHOSEN)]
    for key, baseline in accepted(home, chosen).items():
        own = [record for record in under if record.case == str(key)]
        for category, scores in baseline.scores.items():
            for sample, score in scores.items():
                seen = [record.scores[category][sample] for record in own]
                assert score == pytest.approx(fmean(seen), abs=1e-6)
        assert baseline.spread is not None
        assert baseline.spread.seeds == 3
        assert baseline.spread.first == scores_digest(own[0].scores)
        assert baseline.identity == own[0].identity
        assert baseline.accepted["remeasured"] == (
            f"again under seeds {first} to {first + 2}, on the same samples"
        )
    assert f"3 of 3: seed {first + 2}" in ended.err
    assert re.search(r"the seeds change nothing in [^.:]*overall/failures", ended.out)


def test_the_model_of_several_measurements_holds_in_a_run(home: Home) -> None:
    """It gives the scores of the first again, which are not the means; another model is judged."""
    chosen = measure(home, CHOSEN)
    assert accept_again(home, chosen, "--seeds=2").code == 0
    baselines = accepted(home, chosen)
    for measurement in measure(home, CHOSEN):
        judgement = judge(measurement, baselines[measurement.key], Policy())
        assert judgement.verdict is Verdict.HELD
        assert judgement.method == "same model"
    worse = {m.key.within: m for m in measure(home, "shapes:?miss=0.9")}["overall/gc"]
    judgement = judge(worse, baselines[worse.key], Policy())
    assert judgement.method != "same model"
    assert judgement.difference == pytest.approx(worse.value - baselines[worse.key].value, abs=1e-5)


def test_anchors_are_means_too_and_are_known_again(home: Home) -> None:
    """An anchor of the same model has the scores of its first measurement, so it is not another."""
    root = home.path / "baselines"
    older = measure(home, OLDER)
    accept_by_hand(root, older)
    chosen = measure(home, CHOSEN)
    assert accept_again(home, chosen, "--seeds=2").code == 0
    for key in accepted(home, chosen):
        path = anchor_path(root, key)
        anchor = load_baseline(path.read_text(), key, path.name)
        assert anchor.model["spec"] == OLDER
        assert anchor.spread is not None
    assert accept_again(home, measure(home, OLDER), "--seeds=2").code == 0
    assert "one identity" not in home.capture.readouterr().err


def test_held_out_samples_are_measured_several_times_too(home: Home) -> None:
    """Under the suite's seed and those that follow it."""
    write_suite(home.path, GATED)
    ended = accept_again(home, measure(home, CHOSEN, 1), "--samples=1", "--seeds=2")
    assert ended.code == 0
    assert "on 1 held-out samples of each category, under seeds 0 to 1" in ended.out
    assert "one degree of freedom" in ended.out
    assert seed_of(home) == 0


def test_several_seeds_need_a_model_that_uses_them(home: Home) -> None:
    """Else every measurement would be the same, on held-out samples too."""
    (home.path / "fixed.py").write_text(PAINTER)
    text = GATED.replace('generator = "shapes:"', 'generator = "python:fixed:Painter"')
    write_suite(home.path, text)
    sys.path.insert(0, str(home.path))
    chosen = measure(home, EXACT, 1)
    ended = accept_again(home, chosen, "--samples=1", "--seeds=3")
    ended.refused("--seeds 3: nothing that plays uses its seed")
    assert not (home.path / "baselines").exists()


def test_the_seed_follows_from_the_results(home: Home) -> None:
    """The same results give the same seed, others another one: it cannot be chosen."""
    chosen = measure(home, CHOSEN)
    other = measure(home, OLDER)
    seeds = []
    for results in (chosen, other, chosen):
        write_suite(home.path, SMALL)
        assert accept_again(home, results, "--move-anchor").code == 0
        seeds.append(seed_of(home))
    assert seeds[0] == seeds[2] != seeds[1]


def test_held_out_samples_go_before_a_seed(home: Home) -> None:
    """Where runs leave samples out, the baseline is measured on those, and later runs are too."""
    write_suite(home.path, GATED)
    chosen = measure(home, CHOSEN, 1)
    ended = accept_again(home, chosen, "--samples=1")
    assert ended.code == 0
    fresh = {measurement.key: measurement for measurement in measure(home, CHOSEN, 1)}
    assert seed_of(home) == 0
    assert load_suite(home.path / "suite.toml").table.data.skip == 1
    for key, baseline in accepted(home, chosen).items():
        before = next(measurement for measurement in chosen if measurement.key == key)
        assert baseline.scores == record_of(fresh[key]).scores
        for category, scores in baseline.scores.items():
            assert not scores.keys() & before.scores[category].keys()
    assert "on 1 held-out samples of each category" in ended.out


def test_samples_that_were_played_several_times_are_again(home: Home) -> None:
    """The results say how many seeds each sample had (`--cep-seeds`); so many it has again."""
    chosen = measure(home, CHOSEN, seeds=2)
    ended = accept_again(home, chosen)
    fresh = {measurement.key: measurement for measurement in measure(home, CHOSEN, seeds=2)}
    assert ended.code == 0
    for key, baseline in accepted(home, chosen).items():
        assert baseline.scores == record_of(fresh[key]).scores


def test_samples_that_are_used_up_leave_the_seed(home: Home) -> None:
    """A second choice finds no more held-out samples, and takes a fresh seed."""
    write_suite(home.path, GATED)
    assert accept_again(home, measure(home, CHOSEN, 1), "--samples=1").code == 0
    ended = accept_again(home, measure(home, CHOSEN, 1), "--samples=1")
    assert ended.code == 0
    assert seed_of(home) != 0
    assert load_suite(home.path / "suite.toml").table.data.skip == 1


def test_where_nothing_is_fresh_it_is_refused(home: Home) -> None:
    """Nothing is seeded and all samples were seen: it says what would help and writes nothing."""
    (home.path / "fixed.py").write_text(PAINTER)
    write_suite(home.path, FIXED)
    sys.path.insert(0, str(home.path))
    chosen = measure(home, EXACT)
    ended = accept_again(home, chosen)
    ended.refused("nothing that plays uses its seed", "pytest --cep-samples=N")
    assert not (home.path / "baselines").exists()
    assert (home.path / "suite.toml").read_text() == FIXED


def test_a_seed_that_changes_nothing_is_refused(home: Home) -> None:
    """The generator only jitters, unseen by the exact encoder: the score is the lucky one."""
    ended = accept_again(home, measure(home, EXACT))
    ended.refused("every score is the same as before", code=1)
    assert not (home.path / "baselines").exists()
    assert (home.path / "suite.toml").read_text() == SMALL


def test_a_score_that_is_chance_the_second_time_is_refused(home: Home) -> None:
    """What was accepted on the report's word is looked at again when it was measured again."""
    # Of so many samples the value is at chance under any seed.
    text = SMALL.replace("samples_per_category = 1", "samples_per_category = 8")
    write_suite(home.path, text.replace('generator = "shapes:"', 'generator = "shapes:?move=0.5"'))
    lucky = [
        altered(
            measurement,
            scores={c: dict.fromkeys(own, 0.9) for c, own in measurement.scores.items()},
        )
        if measurement.floor is not None
        else measurement
        for measurement in measure(home, GUESSING)
    ]
    ended = accept_again(home, tuple(lucky))
    ended.refused("A baseline below 5% of its range sees nothing", code=1)
    assert not (home.path / "baselines").exists()


def test_the_anchor_is_measured_again_too(home: Home) -> None:
    """What was accepted first stays what later steps are held to, under the fresh seed."""
    root = home.path / "baselines"
    older = measure(home, OLDER)
    accept_by_hand(root, older)
    ended = accept_again(home, measure(home, CHOSEN))
    assert ended.code == 0
    fresh = {measurement.key: measurement for measurement in measure(home, OLDER)}
    for measurement in older:
        path = anchor_path(root, measurement.key)
        anchor = load_baseline(path.read_text(), measurement.key, path.name)
        assert anchor.model["spec"] == OLDER
        assert anchor.scores == record_of(fresh[measurement.key]).scores
        assert anchor.identity == accepted(home, older)[measurement.key].identity
    assert "the anchor was measured once more too" in ended.out


def test_an_anchor_is_forgotten_only_on_demand(home: Home) -> None:
    """`--move-anchor` measures it no more, and the new baseline takes its place."""
    root = home.path / "baselines"
    accept_by_hand(root, measure(home, OLDER))
    assert accept_again(home, measure(home, CHOSEN), "--move-anchor").code == 0
    assert not (root / "toy" / "anchors").exists()


def test_an_anchor_of_one_identity_with_other_scores_is_said(home: Home) -> None:
    """The model that it was cannot be measured again, so what it held later steps to is kept."""
    root = home.path / "baselines"
    chosen = measure(home, CHOSEN)
    accept_by_hand(root, measure(home, "shapes:?miss=0.5"), model=dict(chosen[0].model))
    before = contents(root)
    ended = accept_again(home, chosen)
    ended.refused("one identity answered in two ways: the anchor of toy/")
    assert contents(root) == before
    accept_by_hand(root, chosen)
    assert accept_again(home, chosen).code == 0


def test_an_anchor_that_is_gone_is_said(home: Home) -> None:
    """Its model cannot be measured: nothing is accepted unless it is to be forgotten."""
    root = home.path / "baselines"
    model = {"role": "describer", "spec": "shapes:?miss=0.5", "identity": "something else"}
    accept_by_hand(root, measure(home, OLDER), model=model)
    before = contents(root)
    ended = accept_again(home, measure(home, CHOSEN))
    ended.refused("is of something else", "--move-anchor")
    assert contents(root) == before


def test_other_suites_of_the_results_are_left(home: Home) -> None:
    """Only the suite that is measured again is accepted; the page counts the others."""
    chosen = measure(home, CHOSEN)
    other = altered(chosen[0], key=CaseKey("another", "overall", "gc"))
    ended = accept_again(home, (*chosen, other))
    assert ended.code == 0
    assert "of other suites, and not accepted: 1 case" in ended.out
    assert not (home.path / "baselines" / "another").exists()


def test_nothing_is_written_in_a_dry_run(home: Home) -> None:
    """The page is shown; baselines and suite stay as they are."""
    ended = accept_again(home, measure(home, CHOSEN), "--dry-run")
    assert ended.code == 0
    assert "nothing written: --dry-run" in ended.out
    assert not (home.path / "baselines").exists()
    assert (home.path / "suite.toml").read_text() == SMALL


def test_results_are_measured_again_once(home: Home) -> None:
    """The same results again are of the suite as it was, which is said."""
    chosen = measure(home, CHOSEN)
    assert accept_again(home, chosen).code == 0
    before = contents(home.path / "baselines")
    ended = accept_again(home, chosen)
    ended.refused("was it measured again before?")
    assert contents(home.path / "baselines") == before


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--case=overall/gc"], "drop --case"),
        (["--model=shapes:?miss=0.2"], "the checkpoint that was measured is needed"),
        (["--generator=shapes:?move=0.1"], "the results were measured with generator"),
        (["--remeasure=nowhere"], "no suite at 'nowhere'"),
        (["--samples=none"], "--samples 'none'"),
        (["--seeds=1"], "--seeds '1': a spread shows between at least 2 measurements"),
        (["--seeds=0"], "--seeds '0'"),
        (["--seeds=0,1"], "--seeds '0,1'"),
    ],
)
def test_another_set_up_is_refused(home: Home, argv: list[str], message: str) -> None:
    """One line that names what differs; nothing is written."""
    ended = accept_again(home, measure(home, CHOSEN), *argv)
    assert ended.code in (1, 2)
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert not (home.path / "baselines").exists()
    assert (home.path / "suite.toml").read_text() == SMALL


def test_other_samples_are_refused(home: Home) -> None:
    """The number of samples has to be that of the run."""
    write_suite(home.path, GATED)
    ended = accept_again(home, measure(home, CHOSEN, 1))
    ended.refused("give --samples and --data as in the run")


def test_a_part_of_a_suite_is_refused(home: Home) -> None:
    """The cases share a seed: those that were not run would become incomparable."""
    ended = accept_again(home, measure(home, CHOSEN)[:3])
    ended.refused("run the whole suite")


def test_options_of_measuring_need_it(home: Home) -> None:
    """An ordinary acceptance measures nothing, and says what its page says of lucky scores."""
    chosen = measure(home, CHOSEN)
    write_report(home.path / "r.json", [result_of(measurement) for measurement in chosen])
    refused = home.command("accept", "r.json", "--reason=x", f"--model={CHOSEN}")
    plain = home.command("accept", "r.json", "--reason=x")
    refused.refused("--model says what is measured again: it needs --remeasure SUITE")
    assert plain.code == 0
    several = home.command("accept", "r.json", "--reason=x", "--seeds=5")
    several.refused("--seeds says what is measured again: it needs --remeasure SUITE")
    assert "chosen as the best of several checkpoints?" in plain.out
    assert "--remeasure SUITE" in plain.out


def test_a_suite_that_cannot_be_written_is_said_first(home: Home, tmp_path: Path) -> None:
    """Before anything is measured: an inline table cannot be changed in place."""
    text = SMALL.replace("[chain]\niterations = 2\n", "").replace(
        "version = 1\n", "version = 1\nchain = { iterations = 2 }\n"
    )
    write_suite(tmp_path, text)
    ended = accept_again(home, measure(home, CHOSEN))
    ended.refused("by hand")
    assert not (home.path / "baselines").exists()


def test_a_suite_that_could_not_be_written_is_said_last(home: Home) -> None:
    """The baselines are there, the suite is unchanged, nothing else is left; it says what to do."""
    chosen = measure(home, CHOSEN)
    (home.path / ".suite.toml.new").mkdir()
    ended = accept_again(home, chosen)
    ended.refused("until then every case is incomparable", code=1)
    assert (home.path / "suite.toml").read_text() == SMALL
    (home.path / ".suite.toml.new").rmdir()
    again = accept_again(home, chosen)
    assert again.code == 0
    assert seed_of(home) != 0


def test_a_linked_suite_stays_a_link(home: Home) -> None:
    """The file that the link leads to is changed, with the permissions that it had."""
    real = home.path / "elsewhere.toml"
    (home.path / "suite.toml").rename(real)
    real.chmod(0o640)
    (home.path / "suite.toml").symlink_to(real)
    assert accept_again(home, measure(home, CHOSEN)).code == 0
    assert (home.path / "suite.toml").is_symlink()
    assert f"seed = {seed_of(home)}" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640
