"""Tests of the models of the embedded world."""
