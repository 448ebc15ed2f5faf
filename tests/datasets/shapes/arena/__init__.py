"""Tests of the arena of shapes."""
