"""Tests of pools of actors, as far as no cluster is needed."""
