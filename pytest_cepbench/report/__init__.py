"""Reports: results of cases as text, HTML, Markdown, JSON and JUnit. Nothing is computed here."""

from pytest_cepbench.report.drift_record import (
    OTHER_WORDS,
    AttractorShown,
    EndShown,
    LinkShown,
    TextDriftShown,
    TextStepShown,
    WordFlowShown,
)
from pytest_cepbench.report.result import (
    AnchorShown,
    AnswerShown,
    BaselineModel,
    CaseResult,
    ChainShown,
    CurveShown,
    HopShown,
    ModelShown,
    SeriesShown,
    StepShown,
    UsageTotals,
)

__all__ = [
    "OTHER_WORDS",
    "AnchorShown",
    "AnswerShown",
    "AttractorShown",
    "BaselineModel",
    "CaseResult",
    "ChainShown",
    "CurveShown",
    "EndShown",
    "HopShown",
    "LinkShown",
    "ModelShown",
    "SeriesShown",
    "StepShown",
    "TextDriftShown",
    "TextStepShown",
    "UsageTotals",
    "WordFlowShown",
]
