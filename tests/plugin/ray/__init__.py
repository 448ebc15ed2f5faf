"""Tests of runs whose models play on a Ray cluster."""
