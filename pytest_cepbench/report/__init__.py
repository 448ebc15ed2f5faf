"""Reports: results of cases shown to people and machines. Nothing is computed here."""

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
