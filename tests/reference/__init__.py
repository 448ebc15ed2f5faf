"""Tests of the scripts in reference/ and of what they made."""
