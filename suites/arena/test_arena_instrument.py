"""The same of rule-based models, whose faults are known. A module of its own runs without torch."""

import pytest

pytestmark = pytest.mark.cep(suite="instrument.toml")


def test_instrument(cep_case, cep_gate):
    """No more battles are lost against the accepted answers, and truth is no farther away."""
    cep_gate(cep_case)
