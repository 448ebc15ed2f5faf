"""Tests of `pytest_cepbench.models.checkpoints`."""
