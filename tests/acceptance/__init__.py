"""Acceptance tests: whole runs on real checkpoints."""
