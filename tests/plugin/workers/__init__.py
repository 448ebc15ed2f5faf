"""Tests of runs on several workers."""
