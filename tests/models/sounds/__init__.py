"""Tests of `pytest_cepbench.models.text_model`."""
