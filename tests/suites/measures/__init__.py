"""Tests of the metrics as suites use them: cases, evidence, scores."""
