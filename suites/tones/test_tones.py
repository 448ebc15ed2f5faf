"""Chains of sounds against their accepted baselines: rule-based models, whose loss is known."""

import pytest


def test_sounds(cep_case, cep_gate):
    """No category, group or the whole drifts more than accepted."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="text.toml")
def test_texts(cep_case, cep_gate):
    """Nothing that begins with a text drifts more than accepted."""
    cep_gate(cep_case)
