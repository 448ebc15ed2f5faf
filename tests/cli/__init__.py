"""Tests of pytest_cepbench.cli."""
