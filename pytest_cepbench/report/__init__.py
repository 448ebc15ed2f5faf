"""Reports: results of cases as text, HTML, Markdown, JSON and JUnit. Nothing is computed here."""

from pytest_cepbench.report.result import (
    AnchorShown,
    AnswerShown,
    BaselineModel,
    CaseResult,
    ChainShown,
    CurveShown,
    FactKindShown,
    FactsShown,
    FactTableShown,
    HopShown,
    LinkShown,
    ModelShown,
    RoleLossShown,
    SeriesShown,
    StepShown,
    UsageTotals,
)

__all__ = [
    "AnchorShown",
    "AnswerShown",
    "BaselineModel",
    "CaseResult",
    "ChainShown",
    "CurveShown",
    "FactKindShown",
    "FactTableShown",
    "FactsShown",
    "HopShown",
    "LinkShown",
    "ModelShown",
    "RoleLossShown",
    "SeriesShown",
    "StepShown",
    "UsageTotals",
]
