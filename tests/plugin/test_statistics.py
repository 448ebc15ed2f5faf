"""Statistics from end to end: anchors, replicates, lost hops, the verdict of a whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import MODES
from tests.plugin.scored_project import Ended, ScoredProject, model, scored_suite

STEP = 0.008
"""Less than the tolerance of 0.01; three steps are more than the anchor's 0.02."""

CHANCE = 116
"""A draw whose mean over thirty samples is zero."""

CASE = "overall-gc"


def _step(number: int) -> str:
    """So many steps from where it began; the differences of two scatter by .3 of their mean."""
    return model(drop=round(number * STEP, 4), spread=round(number * STEP * 0.3, 4), chance=CHANCE)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Two steps have been accepted: the first, a new case without an anchor, is frozen by the
    second, byte for byte.
    """
    project = ScoredProject.make(tmp_path_factory.mktemp("anchors"), scored_suite(n=30))
    written = "1 baseline written below baselines: commit them"
    ended = project.accept(_step(0))
    ended.lines.fnmatch_lines(["1 new case", written])
    assert "changed " not in ended.output
    assert not (project.baselines / "anchors").exists()
    before = project.baseline(CASE).read_bytes()
    ended = project.accept(_step(1))
    changed = "changed scored/overall/gc: 0.8000 -> 0.7920 (-0.00*), n = 30, *"
    ended.lines.fnmatch_lines([f"{changed}one before is its anchor", written])
    assert "new cases" not in ended.output
    assert project.baseline(CASE, anchor=True).read_bytes() == before
    assert project.baseline(CASE).read_bytes() != before
    return project


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["no-plugin", "n2"])
def test_steps_that_add_up_are_regressed(second: ScoredProject, mode: str, tmp_path: Path) -> None:
    """Each within the tolerance of the last: the anchor remembers, and the failure says so."""
    project = second.copy(tmp_path / "third")
    changed = project.accept(_step(2))
    changed.lines.fnmatch_lines(["changed scored/overall/gc: 0.7920 -> 0.7840 (-0.00*), n = 30"])
    assert "anchor" not in changed.output
    ended = project.run("-vv", *MODES[mode], _step(3))
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    case = ended.cases[CASE]
    assert case["verdict"] == case["anchor"]["verdict"] == "regressed"
    assert -case["tolerance"] < case["difference"] < 0
    assert case["anchor"]["difference"] == pytest.approx(-3 * STEP, abs=3e-4)
    ended.lines.fnmatch_lines(
        [
            "regressed: scored, overall, GC@1 (*",
            "  alpha *0.05   0.025 of each test and bound, divided among baseline",
            "  since anchor    -0.02*   anchor 0.8000, *",
            "*-0.0200, regressed",
            "  the steps since the anchor add up to -0.02*, and -0.0200 is tolerated",
        ]
    )


def test_an_anchor_that_cannot_be_read_is_an_error(second: ScoredProject, tmp_path: Path) -> None:
    """Named apart from the baseline, and no pass: without it steps could add up unseen."""
    project = second.copy(tmp_path / "damaged")
    anchor = project.baseline(CASE, anchor=True)
    anchor.write_text(anchor.read_text().replace("format = 2", "format = 99"))
    ended = project.run("-vv", _step(1))
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert ended.verdicts == {CASE: "error"}
    ended.lines.fnmatch_lines([f"  *anchors/{anchor.name} *"])


# -- --cep-seeds: each sample several times, replicates one unit -----------------------------------


CHANCY = model(spread=0.01, chance="seed")


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Thirty samples with three seeds each, seeded."""
    project = ScoredProject.make(tmp_path_factory.mktemp("seeds"), scored_suite(n=30))
    project.accept(CHANCY, "--cep-seeds=3")
    return project


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["no-plugin", "n2"])
def test_replicates_have_seeds_of_their_own_and_count_once(
    seeded: ScoredProject, mode: str
) -> None:
    """Ninety scores of thirty independent units; one and the same sample differs between seeds."""
    options = (*MODES[mode], model(spread=0.012, chance="seed"), "--cep-seeds=3", "-v")
    ended = seeded.run(*options)
    case = ended.cases[CASE]
    assert (case["n"], case["units"], case["looks"]) == (90, 30, [90])
    measured = case["measured"]
    scores = measured["scores"]["one"]
    own = [scores[f"one/000{suffix}"] for suffix in ("", " seed 1", " seed 2")]
    assert len(set(own)) == 3
    assert {measured["clusters"][f"one/000 seed {k}"] for k in (1, 2)} == {"one/000"}
    ended.lines.fnmatch_lines(["*overall GC@1 * 90*"])


def test_other_seeds_are_incomparable(seeded: ScoredProject) -> None:
    """The samples' field names both, and no number is compared."""
    ended = seeded.run("-vv", CHANCY)
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    case = ended.cases[CASE]
    assert (case["verdict"], case["difference"]) == ("incomparable", None)
    ended.lines.fnmatch_lines(["  samples: baseline 90 *, now 30 *"])


# -- attribution: at which hop a regressed case lost -----------------------------------------------


WORSE = model(drop=0.05, spread=0.01)

TWO_HOPS = scored_suite(n=30, rest="[metrics.gc]\n[metrics.fid]\ntolerance = 0.001\n").replace(
    "iterations = 1", "iterations = 2"
)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Two describing hops of every sample; similarities, and a distance between sets."""
    project = ScoredProject.make(tmp_path_factory.mktemp("attributed"), TWO_HOPS)
    project.accept()
    return project


@pytest.fixture(scope="module")
def regressed(followed: ScoredProject) -> Ended:
    """The run of a describer that loses at both of its hops."""
    return followed.run(WORSE, "-vv")


def test_hops_add_up_to_what_was_lost(regressed: Ended) -> None:
    """Over the sixteen samples that lost most; role and generation of every hop."""
    gc = regressed.cases["overall-gc"]
    assert gc["verdict"] == "regressed"
    assert [(hop["start"], hop["role"], hop["generation"]) for hop in gc["hops"]] == [
        ("image", "describer", 1),
        ("image", "describer", 3),
    ]
    scores = gc["measured"]["scores"]["one"]
    worst = sorted(scores.values())[:16]
    lost = sum(0.8 * 1 / 3 + 0.64 * 2 / 3 - score for score in worst) / 16
    assert sum(hop["cost"] for hop in gc["hops"]) == pytest.approx(lost, abs=1e-4)
    assert all(hop["cost"] > 0 for hop in gc["hops"])
    regressed.lines.fnmatch_lines(["  Lost 0.0*over 16 samples: *by the describer at generation *"])


def test_sets_are_followed_whole_or_not_at_all(followed: ScoredProject, regressed: Ended) -> None:
    """A distance belongs to no sample: the number that would do is named, and does."""
    fid = regressed.cases["overall-fid"]
    assert (fid["verdict"], fid["hops"]) == ("regressed", [])
    assert fid["attribution"] == (
        "sets are followed through the chain whole: --cep-attribute=30 does that"
    )
    whole = followed.run(WORSE, "--cep-attribute=30", "-k", "fid").cases["overall-fid"]
    assert [hop["generation"] for hop in whole["hops"]] == [1]
    assert whole["hops"][0]["cost"] == pytest.approx(-whole["difference"], abs=1e-3)


# -- the verdict of a whole suite, which sees what single cases are too weak for -------------------


WHOLE_SUITE = scored_suite(
    n=30,
    categories=("a", "b", "c", "d"),
    rest="[metrics.gc]\n[gate]\nprimary = ['a/gc', 'b/gc', 'c/gc', 'd/gc']\npooled = true\n",
)

POOLED = "suite-verdict"

FAINT = model(drop="0.05,0.05,0.05,0.012", spread="0.01,0.01,0.01,0.028")
"""Three clear losses, and one that is found at the whole alpha and not at a quarter of it."""


@pytest.mark.slow
def test_what_a_case_alone_does_not_see_is_said(tmp_path: Path) -> None:
    """Inconclusive at its share, found by the suite when the others are rejected.

    The suite's verdict has no baseline to accept, and a marker that names parts makes no claim of
    the whole.
    """
    project = ScoredProject.make(tmp_path / "pooled", WHOLE_SUITE)
    assert POOLED not in project.accept("-n", "2").cases
    assert len(list(project.baselines.iterdir())) == 5
    faint = project.run(FAINT, "-vv")
    assert faint.code == pytest.ExitCode.TESTS_FAILED
    lost = dict.fromkeys(("a-gc", "b-gc", "c-gc", "overall-gc", POOLED), "regressed")
    assert faint.verdicts == lost | {"d-gc": "inconclusive"}
    assert faint.cases[POOLED]["primary"]
    assert faint.report["alpha"] == faint.cases[POOLED]["alpha"] == pytest.approx(0.05)
    faint.lines.fnmatch_lines(
        [
            "*test_drift?suite-verdict? REGRESSED *",
            "regressed: scored, suite, pooled verdict (*",
            "  a/gc: -0.0*",
            "  d/gc: -0.011* (not seen by the case alone)",
            "=* 3 failed, 1 inconclusive, 1 informational, 1 regressed as a whole in *",
        ]
    )
    assert POOLED not in project.accept(model(drop=0.02)).cases
    assert not list(project.baselines.glob("*verdict*"))
    project.edit(
        "test_scored.py", "def ", "import pytest\n\n@pytest.mark.cep(metrics=['gc'])\ndef "
    )
    assert POOLED not in project.run("--collect-only", "-q").output
