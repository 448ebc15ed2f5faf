"""Edits of generated scenes against the accepted baselines."""

import pytest


def test_edits(cep_case, cep_gate):
    """No edit is followed less often than accepted, by the describer or the generator."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="instrument.toml")
def test_instrument(cep_case, cep_gate):
    """The same under the rule-based models, whose loss is known."""
    cep_gate(cep_case)
