"""Edits of photographs against the accepted baselines."""

import pytest


def test_described(cep_case, cep_gate):
    """Mirrored photographs are described as mirrored, and darker ones as before."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="pairs.toml")
def test_drawn(cep_case, cep_gate):
    """The same, and captions whose sides are exchanged are drawn mirrored."""
    cep_gate(cep_case)
