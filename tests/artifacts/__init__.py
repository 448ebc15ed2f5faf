"""Tests of pytest_cepbench.artifacts."""
