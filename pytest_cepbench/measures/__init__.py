"""Metrics as a suite uses them: their cases, what they read, and how that becomes scores."""

from pytest_cepbench.measures.base import (
    ENCODER,
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    SuiteContext,
)
from pytest_cepbench.measures.measure_registry import KINDS, list_cases, make_measures, read_table

__all__ = [
    "ENCODER",
    "KINDS",
    "CaseScores",
    "ChainExcerpt",
    "Measure",
    "Measured",
    "MetricTable",
    "SuiteContext",
    "list_cases",
    "make_measures",
    "read_table",
]
