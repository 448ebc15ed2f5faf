"""Metrics as a suite uses them: their cases, what they read, and how that becomes scores."""

from pytest_cepbench.suites.measures.catalog import (
    KINDS,
    list_cases,
    make_measures,
    read_table,
)
from pytest_cepbench.suites.measures.measure import Measure, Measured, Outcome, Shown, Stage
from pytest_cepbench.suites.measures.settings import ENCODER, MetricTable

__all__ = [
    "ENCODER",
    "KINDS",
    "Measure",
    "Measured",
    "MetricTable",
    "Outcome",
    "Shown",
    "Stage",
    "list_cases",
    "make_measures",
    "read_table",
]
