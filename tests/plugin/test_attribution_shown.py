"""Attribution: a regressed case says at which hop it lost, in the failure text and in the JSON."""

from __future__ import annotations

import pytest

from tests.plugin.scored_project import Ended, ScoredProject, model, scored_suite

WORSE = model(drop=0.05, spread=0.01)

SUITE = scored_suite(n=30, rest="[metrics.gc]\n[metrics.fid]\ntolerance = 0.001\n").replace(
    "iterations = 1", "iterations = 2"
)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Two describing hops of every sample; similarities, and a distance between sets."""
    project = ScoredProject.make(tmp_path_factory.mktemp("attributed"), SUITE)
    project.accept()
    return project


@pytest.fixture(scope="module")
def regressed(accepted: ScoredProject) -> Ended:
    """The run of a describer that loses at both of its hops."""
    return accepted.run(WORSE, "-vv")


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


def test_the_failure_text_shows_them(regressed: Ended) -> None:
    """In a sentence and as a table, before what to do next."""
    first, second = regressed.cases["overall-gc"]["hops"]
    regressed.lines.fnmatch_lines(
        [
            "regressed: scored, overall, GC@2 *",
            "  Lost 0.0*over 16 samples: *by the describer at generation *",
            "  hop *cost *share",
            f"  describer, generation 1 *{first['cost']:+.4f} * %",
            f"  describer, generation 3 *{second['cost']:+.4f} * %",
            "  next: *",
        ]
    )


def test_sets_are_followed_whole_or_not_at_all(accepted: ScoredProject, regressed: Ended) -> None:
    """A distance belongs to no sample: the number that would do is named, and does."""
    fid = regressed.cases["overall-fid"]
    assert (fid["verdict"], fid["hops"]) == ("regressed", [])
    assert fid["attribution"] == (
        "sets are followed through the chain whole: --cep-attribute=30 does that"
    )
    whole = accepted.run(WORSE, "--cep-attribute=30", "-k", "fid").cases["overall-fid"]
    assert [hop["generation"] for hop in whole["hops"]] == [1]
    assert whole["hops"][0]["cost"] == pytest.approx(-whole["difference"], abs=1e-3)
