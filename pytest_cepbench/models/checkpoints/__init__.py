"""Checkpoints on disk: found, recognised, checked and fingerprinted without any model library."""
