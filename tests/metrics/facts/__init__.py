"""Tests of pytest_cepbench.metrics.facts."""
