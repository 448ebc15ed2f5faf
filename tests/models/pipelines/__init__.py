"""Tests of `pytest_cepbench.models.generators`."""
