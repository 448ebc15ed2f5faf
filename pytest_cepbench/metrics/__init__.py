"""Metrics: pure functions of arrays. No files, no models, no torch."""

from pytest_cepbench.metrics.correlation import correlation, rank_table, shared_ranks
from pytest_cepbench.metrics.gc import cosine_to_start, gc_at_t, mean_of_categories, mean_similarity
from pytest_cepbench.metrics.human_ratings import alignment, predicted_choice

__all__ = [
    "alignment",
    "correlation",
    "cosine_to_start",
    "gc_at_t",
    "mean_of_categories",
    "mean_similarity",
    "predicted_choice",
    "rank_table",
    "shared_ranks",
]
