"""The instrument against its accepted baselines: rule-based models, whose loss is known."""

import pytest


def test_drift(cep_case, cep_gate):
    """No category, group or the whole drifts more than accepted."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="drift.toml")
def test_mappings(cep_case, cep_gate):
    """No mapping of the two chains drifts more than accepted, nor their mean."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="tasks.toml")
def test_tasks(cep_case, cep_gate):
    """No task is met less often than accepted, at the first drawing or over all of them."""
    cep_gate(cep_case)
