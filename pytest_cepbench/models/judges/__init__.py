"""Judges: what they are shown, how their verdicts are read, and local checkpoints as judges."""
