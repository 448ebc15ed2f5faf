"""Tests of `pytest_cepbench.models.writers`."""
