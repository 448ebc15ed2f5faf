"""The published benchmarks as suites; see docs/suites.md."""
