"""My images against their accepted baselines."""


def test_drift(cep_case, cep_gate):
    """No category, group or the whole drifts more than accepted."""
    cep_gate(cep_case)
