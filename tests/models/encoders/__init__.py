"""Tests of `pytest_cepbench.models.encoders`."""
