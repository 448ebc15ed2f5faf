"""Tests of the readers of OpenING's files."""
