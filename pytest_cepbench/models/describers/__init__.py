"""Describers: image-text-to-text checkpoints of transformers."""
