"""Tests of chains that other tools have generated."""
