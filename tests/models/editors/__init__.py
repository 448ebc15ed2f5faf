"""Tests of `pytest_cepbench.models.editors`."""
