"""Builders of tiny checkpoints with random weights, saved as users' checkpoints are."""
