"""Tests of pytest_cepbench.gate.statistics."""
