"""OpenING: interleaved answers, each scored by the judge in seven criteria."""


def test_scores(cep_case, cep_gate):
    """Scores are shown; more failures of the model or the judge than are tolerated fail the run."""
    cep_gate(cep_case)
