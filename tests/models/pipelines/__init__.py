"""Tests of `pytest_cepbench.models.pipelines`."""
