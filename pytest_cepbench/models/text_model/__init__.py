"""Image-text-to-text checkpoints of transformers in every role that such a model can have."""
