"""Interleaved answers of the shapes world against the accepted ones: their battles and truth."""

import pytest


@pytest.mark.cep(suite="instrument.toml")
def test_instrument(cep_case, cep_gate):
    """No more battles are lost against the accepted answers, and truth is no farther away."""
    cep_gate(cep_case)
