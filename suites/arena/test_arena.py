"""Interleaved answers of trained models against the accepted ones: their battles and truth."""


def test_answers(cep_case, cep_gate):
    """No more battles are lost against the accepted answers, and truth is no farther away."""
    cep_gate(cep_case)
