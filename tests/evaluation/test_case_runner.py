"""How a case is judged and accepted: its share of alpha, and what may become a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cepbench.evaluation.case_runner import judge_case
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import read_settings
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.suites.gate_config import Overrides
from tests.evaluation.gated_project import GatedProject

SUITE = """\
[metrics.gc]
[metrics.s]
[gate]
primary = ['one/gc', 'two/gc']
[cases.'one/gc']
weight = 4
"""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> GatedProject:
    """Two categories, one of which has most of alpha; `s` is informational."""
    path = tmp_path_factory.mktemp("runner") / "project"
    return GatedProject.make(path, n=20, categories=("one", "two"), rest=SUITE)


@pytest.fixture
def evaluator(accepted: GatedProject) -> Iterator[Evaluator]:
    """A process that judges the collected cases `one/gc` and `two/gc`."""
    texts = {"model": ["python:tests.plugin.scored:Describer"]}
    settings = read_settings(texts, {"model": "here"}, accepted.path)
    evaluator = Evaluator(RunContext(settings))
    path = accepted.path / "suite.toml"
    cases = _cases(evaluator, path)
    evaluator.assign({name: (path, cases[name], Overrides()) for name in ("one-gc", "two-gc")})
    yield evaluator
    evaluator.close()


def _cases(evaluator: Evaluator, path: Path) -> dict[str, Case]:
    cases = evaluator.suites.cases(path, pooled=False)
    return {case.id: case for case in cases if isinstance(case, Case)}


@pytest.mark.parametrize(
    ("case", "test", "alpha"),
    [
        ("one-gc", "one-gc", 0.04),
        ("two-gc", "two-gc", 0.01),
        ("one-gc", "another test", 0.01),
        ("one-s", "one-s", 0.05),
    ],
)
def test_a_case_is_judged_at_its_share_of_alpha(
    evaluator: Evaluator, accepted: GatedProject, case: str, test: str, alpha: float
) -> None:
    """One that was not collected has the smallest share, one that is informational all of it."""
    path = accepted.path / "suite.toml"
    result = judge_case(evaluator, path, _cases(evaluator, path)[case], test, Overrides())

    assert result.alpha == pytest.approx(alpha)
    assert result.verdict == "held"


def test_a_tolerance_that_no_drop_exceeds_is_an_error(
    evaluator: Evaluator, accepted: GatedProject
) -> None:
    """Similarities differ by 2 at most: with a larger tolerance every checkpoint would pass."""
    path = accepted.path / "suite.toml"
    case = _cases(evaluator, path)["one-gc"]
    result = judge_case(evaluator, path, case, "one-gc", Overrides(tolerance=5.0))

    assert result.verdict == "error"
    assert "so no drop exceeds it" in result.reasons[0]


def test_a_category_at_chance_is_refused_only_where_it_can_fail_a_run(
    accepted: GatedProject, tmp_path: Path
) -> None:
    """An informational case lets no worse checkpoint pass, so its baseline may lie at chance."""
    project = accepted.copy(tmp_path / "primary")
    refused = project.gate(snapshot_update=True, drop="0,0.77")
    assert not refused.passed
    assert [case.part for case in refused.cases if case.refused] == ["two"]

    suite = project.path / "suite.toml"
    suite.write_text(suite.read_text().replace(", 'two/gc'", ""))
    taken = project.gate(snapshot_update=True, drop="0,0.77")
    assert taken.passed
    assert taken["scored/two/gc"].accepted
