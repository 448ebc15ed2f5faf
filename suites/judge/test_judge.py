"""The agreement of a judge with stored verdicts, which must not fall."""


def test_judge(cep_case, cep_gate):
    """The judge agrees with the stored verdicts as often as the accepted one, in each category."""
    cep_gate(cep_case)
