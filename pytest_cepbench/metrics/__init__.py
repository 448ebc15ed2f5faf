"""Metrics: pure functions of arrays. No files, no models, no torch."""

from pytest_cepbench.metrics.correlation import (
    correlation,
    correlation_matrix,
    rank_table,
    shared_ranks,
)
from pytest_cepbench.metrics.frechet import frechet_distance, gc_fid_at_t
from pytest_cepbench.metrics.gc import gc_at_t, mean_of_categories, mean_similarity
from pytest_cepbench.metrics.human_ratings import (
    alignment,
    predicted_choice,
)
from pytest_cepbench.metrics.kernel_distance import KernelBlocks, kernel_distance
from pytest_cepbench.metrics.length_bands import word_statistics
from pytest_cepbench.metrics.moments import FeatureSet
from pytest_cepbench.metrics.semantic_drift import (
    DriftRate,
    fit_drift_rate,
    mapping_generations,
    mcd_average,
    mcd_of_mapping,
)
from pytest_cepbench.metrics.similarity import cosine_to_start
from pytest_cepbench.metrics.uncertainty import spread_of

__all__ = [
    "DriftRate",
    "FeatureSet",
    "KernelBlocks",
    "alignment",
    "correlation",
    "correlation_matrix",
    "cosine_to_start",
    "fit_drift_rate",
    "frechet_distance",
    "gc_at_t",
    "gc_fid_at_t",
    "kernel_distance",
    "mapping_generations",
    "mcd_average",
    "mcd_of_mapping",
    "mean_of_categories",
    "mean_similarity",
    "predicted_choice",
    "rank_table",
    "shared_ranks",
    "spread_of",
    "word_statistics",
]
