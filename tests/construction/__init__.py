"""Tests of the construction of data sets."""
