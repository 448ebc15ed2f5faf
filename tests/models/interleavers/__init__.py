"""Tests of `pytest_cepbench.models.interleavers`."""
