"""Tests of the history of runs."""
