"""GitLab's report of code quality: issues with the fields that GitLab reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.ci_reports import code_quality
from tests.report.results import FULL, RESULTS, replace
from tests.test_escapes import hides_nothing

ROOT = Path("/builds/team/model/gates")


def _issues(results: list[CaseResult], *problems: str) -> list[dict[str, Any]]:
    issues: list[dict[str, Any]] = json.loads(code_quality(results, problems, ROOT, ROOT.parent))
    return issues


def test_an_issue_of_a_regressed_case() -> None:
    """In full, as GitLab documents it."""
    (issue,) = _issues([FULL])
    assert issue == {
        "description": "toy color GC@2 regressed: difference -0.2500, "
        "p 0.00042, tolerance 0.0100, n = 50",
        "check_name": "cepbench: regressed",
        "fingerprint": issue["fingerprint"],
        "severity": "critical",
        "location": {"path": "gates/test_x.py", "lines": {"begin": 1}},
    }


def test_severity_of_each_kind_of_case() -> None:
    """What fails the run is critical or major; what holds is no issue."""
    severities = {
        "held": None, "improved": None, "inconclusive": "minor", "regressed": "critical",
        "error": "major", "incomparable": "major", "no-baseline": "major",
    }  # fmt: skip
    for verdict, severity in severities.items():
        issues = _issues([replace(FULL, verdict=verdict)])
        assert [issue["severity"] for issue in issues] == ([severity] if severity else [])
    (informational,) = _issues([replace(FULL, primary=False)])
    assert informational["severity"] == "info"
    assert _issues([replace(FULL, verdict="no-baseline", accepted=True)]) == []
    (refused,) = _issues([replace(FULL, verdict="held", refused="close to chance")])
    assert refused["severity"] == "major"


def test_an_incomplete_run_is_a_blocker() -> None:
    """Although no case of it may have failed."""
    (issue,) = _issues([], "2 tests did not report")
    assert issue["severity"] == "blocker"
    assert issue["description"] == "the run is incomplete: 2 tests did not report"


def test_an_issue_is_the_same_one_in_the_next_run() -> None:
    """Other numbers leave the fingerprint; another case or verdict has another."""
    again = replace(FULL, value=0.25, difference=-0.5, nodeid="moved.py::test_x")
    fingerprints = [
        issue["fingerprint"]
        for case in (FULL, again, replace(FULL, part="shape"), replace(FULL, verdict="error"))
        for issue in _issues([case])
    ]
    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 3


@given(st.lists(RESULTS, max_size=4))
def test_every_issue_has_the_fields_that_are_read(results: list[CaseResult]) -> None:
    """Whatever it is about."""
    assert hides_nothing(code_quality(results, (), ROOT, ROOT), "\n")
    for issue in _issues(results):
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in {"info", "minor", "major", "critical", "blocker"}
