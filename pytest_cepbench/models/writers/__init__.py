"""Writers: image-text-to-text checkpoints of transformers that answer questions."""
