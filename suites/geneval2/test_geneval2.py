"""GenEval 2 against its accepted baselines."""


def test_atoms(cep_case, cep_gate):
    """Soft-TIFA: prompts of no atomicity are met less than accepted, nor all of them."""
    cep_gate(cep_case)
