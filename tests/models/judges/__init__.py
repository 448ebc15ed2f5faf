"""Tests of `pytest_cepbench.models.judges`."""
