"""Metrics: pure functions of arrays. No files, no models, no torch."""
