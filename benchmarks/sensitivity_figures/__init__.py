"""The parts of `benchmarks/sensitivity.py`: what is damaged, measured, calibrated and printed."""
