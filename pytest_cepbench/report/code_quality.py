"""The cases of a run as a report of code quality, which GitLab shows in merge requests.

A list of issues in JSON, as GitLab documents it: of Code Climate's format it reads `description`,
`check_name`, `fingerprint`, `severity` and `location`. Cases that hold are no issues.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_cepbench.escapes import escape_json
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.github import path_in_repository
from pytest_cepbench.report.number_format import printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text import one_line

SUFFIX = ".codequality.json"
"""Of the file, beside the run's other reports."""


def code_quality(
    results: Sequence[CaseResult], problems: Sequence[str], root: Path, repository: Path
) -> str:
    """The issues of a run as JSON text.

    A case has the same fingerprint in every run in which it has the same verdict, so that GitLab
    tells new issues from old ones.

    problems: why the run is incomplete; empty when it is complete.
    root: folder that node ids begin from.
    repository: the checkout, from which GitLab reads paths.
    """
    issues = [
        _issue(
            ("incomplete", str(place)), "incomplete", f"the run is incomplete: {problem}", "blocker"
        )
        for place, problem in enumerate(problems)
    ]
    for result in results:
        severity = _severity(result)
        if severity is None:
            continue
        word = result.word.lower()
        keys = (result.suite, result.part, result.metric, word)
        path = path_in_repository(result.nodeid, root, repository)
        issues.append(_issue(keys, word, one_line(result), severity, path))
    return escape_json(json.dumps(issues, indent=2, ensure_ascii=False)) + "\n"


def _severity(result: CaseResult) -> str | None:
    """One of GitLab's words, from info to blocker; None for a case without an issue."""
    if not result.passes:
        return "critical" if result.verdict == Verdict.REGRESSED else "major"
    if result.settled or result.verdict == Verdict.IMPROVED:
        return None
    return "minor" if result.primary else "info"


def _issue(
    keys: Sequence[str], check: str, description: str, severity: str, path: str = "."
) -> dict[str, Any]:
    return {
        "description": printable(description, 1000),
        "check_name": f"cepbench: {check}",
        "fingerprint": sha256("\0".join(keys).encode("utf-8", "replace")).hexdigest(),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": 1}},
    }
