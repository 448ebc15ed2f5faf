"""Tests of `pytest_cepbench.models.detectors`."""
