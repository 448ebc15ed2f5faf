"""Tests of interleaved answers and their battles."""
