"""Acceptance tests of the suites that are shipped: published file formats in, verdicts out."""
