"""Tests of `pytest_cepbench.models.unified`."""
