"""Tests of suites: their files, their data, their cases."""
