"""Tests of what is shown: text, JSON and HTML."""
