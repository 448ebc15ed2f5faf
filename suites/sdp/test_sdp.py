"""The Semantic Drift Protocol against its accepted baselines."""


def test_drift(cep_case, cep_gate):
    """No mapping drifts more than accepted, nor their mean."""
    cep_gate(cep_case)
