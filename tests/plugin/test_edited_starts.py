"""The suite of edited scenes under rule-based models, run as a user runs it, on fewer samples."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugin.project import Project

pytestmark = pytest.mark.slow

SHIPPED = Path(__file__).parents[2] / "suites" / "shapes-equivariance" / "instrument.toml"

FEW = ("--cep-samples=20", "--model=shapes:")

GATE = "def test_edits(cep_case, cep_gate):\n    cep_gate(cep_case)\n"


@pytest.fixture
def shipped(project: Project) -> Project:
    """A project with the suite; the perfect models are accepted."""
    folder = project.path / "suites" / "edits"
    folder.mkdir(parents=True)
    shutil.copy(SHIPPED, folder / "suite.toml")
    (folder / "test_edits.py").write_text(GATE, encoding="utf-8")
    assert project.run(*FEW, "--snapshot-update").ret == pytest.ExitCode.OK
    return project


def test_pairs_are_measured_alike_by_two_workers(shipped: Project) -> None:
    """Chains of a pair may lie in shards of two workers; the numbers are the same."""
    assert shipped.run("-n", "0", *FEW).ret == pytest.ExitCode.OK
    alone = shipped.numbers()
    assert len(alone) == 2 * 5 + 1 + 1
    assert shipped.run("-n", "2", "--cep-store=another", *FEW).ret == pytest.ExitCode.OK
    assert shipped.numbers() == alone


def test_a_blind_describer_fails_by_the_edit_that_it_does_not_see(shipped: Project) -> None:
    """Only its recolored scenes regress among the edits, and the report follows them back."""
    result = shipped.run("--cep-samples=20", "--model=shapes:?prior=1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    verdicts = {(c["part"], c["metric"]): c["verdict"] for c in shipped.numbers()}
    assert verdicts["recolor", "described"] == verdicts["overall", "described"] == "regressed"
    for edit in ("move", "remove"):
        assert verdicts[edit, "described"] != "regressed"
    assert all(verdicts[edit, "drawn"] != "regressed" for edit in ("mirror", "recolor", "move"))


def test_a_run_that_was_cut_short_goes_on(shipped: Project) -> None:
    """What the store has of either chain of a pair is not computed again."""
    result = shipped.run(*FEW)
    result.stdout.fnmatch_lines(["*0 model loads, 0 model inputs*"])
