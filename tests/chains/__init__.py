"""Tests of pytest_cepbench.chains."""
