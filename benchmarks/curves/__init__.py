"""What `benchmarks/training_curves.py` is made of: line-ups, their chains and truth, analysis, tables, plots."""
