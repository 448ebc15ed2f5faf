"""Reports: results of cases as text, HTML, Markdown, JSON and JUnit. Nothing is computed here."""

from pytest_cepbench.report.result import (
    AnchorShown,
    CaseResult,
    ChainShown,
    HopShown,
    LinkShown,
    ModelShown,
    UsageTotals,
)

__all__ = [
    "AnchorShown",
    "CaseResult",
    "ChainShown",
    "HopShown",
    "LinkShown",
    "ModelShown",
    "UsageTotals",
]
