"""Judges under test, on battles with stored verdicts."""
