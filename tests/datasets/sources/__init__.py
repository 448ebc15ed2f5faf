"""Tests of data that is read where it lies."""
