"""Tests of the metrics as suites use them: cases, chain data, scores."""
