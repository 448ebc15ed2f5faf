"""Tests of pytest_cepbench.metrics.arena."""
