"""Interleavers: checkpoints that answer a question with texts and images."""
