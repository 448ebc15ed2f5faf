"""`[gate] proxy` on several workers: the same samples, the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.scored_project import ScoredProject

_SUITE = """\
name = "world"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 24 }
[chain]
start = "image"
iterations = 3
[prompts]
describe = "describe the image"
[roles]
describer = "shapes:?miss=0.1"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
parts = "overall"
[gate]
looks = "sequential"
proxy = "first"
"""

_MORE = ("--cep-inconclusive=more", "--cep-attribute=0", "--describer=shapes:?miss=0.08")


@pytest.mark.slow
def test_workers_begin_and_end_the_same_chains(tmp_path: Path) -> None:
    """Two workers and one process give a case the same looks, bounds and notes.

    The second run on the same store asks no model anything.
    """
    project = ScoredProject.make(tmp_path / "project", _SUITE)
    project.run("--snapshot-update", "--describer=shapes:?miss=0.1")
    other = project.copy(tmp_path / "other")
    shared = other.run("-n", "2", *_MORE)
    alone = project.run(*_MORE)
    case = alone.cases["overall-gc"]
    assert case["method"] == "two-phase"
    assert any("whole chains and the proxies of" in note for note in case["notes"])
    assert shared.numbers == alone.numbers
    assert alone.inputs > 0
    again = project.run(*_MORE)
    assert (again.numbers, again.inputs) == (alone.numbers, 0)
