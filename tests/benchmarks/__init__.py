"""Tests of the scripts in benchmarks/ that are more than a measurement."""
