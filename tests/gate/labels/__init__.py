"""Tests of pytest_cepbench.gate.labels."""
