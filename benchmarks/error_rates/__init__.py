"""What `benchmarks/gate_error_rates.py` is made of: worlds of scores, verdicts on them, tables."""
