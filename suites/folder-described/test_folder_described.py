"""Any folder of images, described and drawn once, against its accepted baselines."""


def test_one_iteration(cep_case, cep_gate):
    """No category, group or the whole is told less well than accepted."""
    cep_gate(cep_case)
