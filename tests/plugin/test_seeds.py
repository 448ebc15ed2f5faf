"""`--cep-seeds`: each sample played several times, replicates one unit, seeds in the identity."""

from __future__ import annotations

import pytest

from tests.plugin.project import MODES
from tests.plugin.scored_project import ScoredProject, model, scored_suite

CHANCY = model(spread=0.01, chance="seed")

CASE = "overall-gc"


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Thirty samples with three seeds each, accepted."""
    project = ScoredProject.make(tmp_path_factory.mktemp("seeds"), scored_suite(n=30))
    project.accept(CHANCY, "--cep-seeds=3")
    return project


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["no-plugin", "n2"])
def test_replicates_have_seeds_of_their_own_and_count_once(
    accepted: ScoredProject, mode: str
) -> None:
    """Ninety scores of thirty independent units; one and the same sample differs between seeds."""
    options = (*MODES[mode], model(spread=0.012, chance="seed"), "--cep-seeds=3", "-v")
    ended = accepted.run(*options)
    case = ended.cases[CASE]
    assert (case["n"], case["units"], case["looks"]) == (90, 30, [90])
    measured = case["measured"]
    scores = measured["scores"]["one"]
    own = [scores[f"one/000{suffix}"] for suffix in ("", " seed 1", " seed 2")]
    assert len(set(own)) == 3
    assert {measured["clusters"][f"one/000 seed {k}"] for k in (1, 2)} == {"one/000"}
    ended.lines.fnmatch_lines(["*overall GC@1 * 90*"])


@pytest.mark.parametrize("seeds", ["1", "4"])
def test_other_seeds_are_incomparable(accepted: ScoredProject, seeds: str) -> None:
    """More, fewer, or none: the samples' field names both, and no number is compared."""
    ended = accepted.run("-vv", CHANCY, f"--cep-seeds={seeds}")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    case = ended.cases[CASE]
    assert (case["verdict"], case["difference"]) == ("incomparable", None)
    ended.lines.fnmatch_lines([f"  samples: baseline 90 *, now {30 * int(seeds)} *"])
