"""Metrics: pure functions of arrays. No files, no models, no torch."""

from pytest_cepbench.metrics.catalog import METRICS, Metric
from pytest_cepbench.metrics.gc import gc_at_t, mean_of_categories, mean_similarity
from pytest_cepbench.metrics.similarity import cosine_to_start

__all__ = [
    "METRICS",
    "Metric",
    "cosine_to_start",
    "gc_at_t",
    "mean_of_categories",
    "mean_similarity",
]
