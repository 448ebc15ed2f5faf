"""Tests of `pytest_cepbench.models.describers`."""
