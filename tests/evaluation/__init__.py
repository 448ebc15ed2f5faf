"""Tests of evaluation without pytest."""
