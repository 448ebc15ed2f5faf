"""Parts of `benchmarks/training_curves.py`: line-ups, chains and truth, analysis, tables, plots."""
