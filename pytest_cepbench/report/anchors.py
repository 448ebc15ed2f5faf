"""Names of places in the page's addresses, the same in every run."""

from __future__ import annotations

import re
from hashlib import sha256

from pytest_cepbench.report.result import CaseResult

_NOT_IN_ANCHORS = re.compile(r"[^A-Za-z0-9]+")

_LONGEST_NAME = 60


def case_anchor(result: CaseResult) -> str:
    """Name of a case: `#case-...` is its row, `#details-...` its details."""
    return _anchor(result.suite, result.part, result.metric)


def sample_anchor(result: CaseResult, sample: str) -> str:
    """Name of a sample of a case."""
    return f"sample-{_anchor(result.suite, result.part, result.metric, sample)}"


def _anchor(*names: str) -> str:
    text = _NOT_IN_ANCHORS.sub("-", " ".join(names)).strip("-").lower()
    digest = sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:8]
    return f"{text[:_LONGEST_NAME]}-{digest}"
