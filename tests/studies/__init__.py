"""Tests of pytest_cepbench.studies."""
