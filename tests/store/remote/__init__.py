"""Tests of pytest_cepbench.store.remote."""
