"""OpenING: interleaved answers against the accepted model's, and against reference answers."""

import pytest


def test_answers(cep_case, cep_gate):
    """No more battles are lost against the accepted answers than are tolerated."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="gold.toml")
def test_reference_answers(cep_case, cep_gate):
    """No more battles are lost against the reference answers than were when it was accepted."""
    cep_gate(cep_case)
