"""The result of a whole run: its verdict, its exit code, and what never counts as passed."""

from __future__ import annotations

import pytest

from pytest_cepbench import GateResult
from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.report import CaseResult
from tests.report.results import replace


def case(verdict: str, *, primary: bool = True, accepted: bool = False) -> CaseResult:
    """A judged case."""
    judgement = Judgement(Verdict(verdict))
    return CaseResult(
        *("a.py::t", "toy", "overall", "gc", "GC@2", 0.01, judgement),
        primary=primary,
        accepted=accepted,
    )


HELD, REGRESSED, ERROR = case("held"), case("regressed"), case("error")
UNDECIDED = case("inconclusive")
INFORMATIONAL = case("regressed", primary=False)


@pytest.mark.parametrize(
    ("cases", "problems", "skipped", "code", "verdict"),
    [
        ((HELD,), (), {}, 0, "passed"),
        ((HELD, INFORMATIONAL), (), {}, 0, "passed"),
        ((HELD, UNDECIDED), (), {}, 0, "undecided"),
        ((HELD, case("inconclusive", primary=False)), (), {}, 0, "passed"),
        ((HELD, replace(UNDECIDED, strict=True)), (), {}, 1, "failed"),
        ((UNDECIDED, REGRESSED), (), {}, 1, "failed"),
        ((UNDECIDED,), ("a case vanished",), {}, 3, "incomplete"),
        ((HELD,), (), {"other.toml": "not concerned"}, 0, "passed"),
        ((HELD, REGRESSED), (), {}, 1, "failed"),
        ((HELD, ERROR), (), {}, 1, "failed"),
        ((HELD,), ("a case vanished",), {}, 3, "incomplete"),
        ((REGRESSED,), ("a case vanished",), {}, 1, "incomplete"),
        ((case("incomplete"), REGRESSED), (), {}, 3, "failed"),
        ((), (), {}, 5, "incomplete"),
        ((), (), {"suite.toml": "not concerned"}, 5, "incomplete"),
        ((INFORMATIONAL,), (), {}, 5, "incomplete"),
        ((case("no-baseline", accepted=True),), (), {}, 0, "passed"),
    ],
)
def test_a_result_passes_only_where_everything_was_compared(
    cases: tuple[CaseResult, ...],
    problems: tuple[str, ...],
    skipped: dict[str, str],
    code: int,
    verdict: str,
) -> None:
    """Exit code and verdict of each kind of run; it passes where the code is 0 and nowhere else."""
    result = GateResult(cases, skipped, problems)

    assert (result.exit_code, result.verdict) == (code, verdict)
    assert result.passed == (code == 0)
    assert str(result).rstrip().splitlines()[-1] != ""
    assert f"verdict: {verdict}" in str(result)


def test_an_informational_case_that_was_not_measured_says_why() -> None:
    """It fails no run, and its reason is not hidden behind the cases that pass."""
    unmeasured = replace(case("error", primary=False), reasons=["the server was away"])
    result = GateResult((HELD, unmeasured))

    assert result.passed
    assert (
        "informational: toy overall GC@2 was not measured: the server was away"
        in str(result).splitlines()
    )
    assert "was not measured" not in str(GateResult((HELD, INFORMATIONAL, ERROR)))
