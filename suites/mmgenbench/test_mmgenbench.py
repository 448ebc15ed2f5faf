"""MMGenBench against its accepted baselines."""

import pytest


def test_patterns(cep_case, cep_gate):
    """Test: no pattern is drawn less alike than accepted, nor the whole."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="domain.toml")
def test_domain(cep_case, cep_gate):
    """Domain: the whole."""
    cep_gate(cep_case)
