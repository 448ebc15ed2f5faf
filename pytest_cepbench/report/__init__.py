"""Reports: results of cases as text, HTML, Markdown, JSON and JUnit. Nothing is computed here."""

from pytest_cepbench.report.result import (
    AnswerShown,
    BaselineModel,
    CaseResult,
    ChainShown,
    CurveShown,
    HopShown,
    LinkShown,
    ModelShown,
    SeriesShown,
    Shown,
    StepShown,
    UsageTotals,
)

__all__ = [
    "AnswerShown",
    "BaselineModel",
    "CaseResult",
    "ChainShown",
    "CurveShown",
    "HopShown",
    "LinkShown",
    "ModelShown",
    "SeriesShown",
    "Shown",
    "StepShown",
    "UsageTotals",
]
