"""Detectors of transformers: asked in free text, or for the classes that they know."""
