"""Tests of `pytest_cepbench.models.vqa`."""
