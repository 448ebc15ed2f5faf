"""Gate checkpoints of multimodal models in pytest."""

__version__ = "0.1.0"
