"""GenEval, and GenEval over many generations, against their accepted baselines."""

import pytest


def test_tasks(cep_case, cep_gate):
    """GenEval: no task is met less often than accepted, nor all of them."""
    cep_gate(cep_case)


@pytest.mark.cep(suite="mgg.toml")
def test_generations(cep_case, cep_gate):
    """MGG: the same over the generations of a chain."""
    cep_gate(cep_case)
