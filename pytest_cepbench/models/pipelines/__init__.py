"""Generators: text-to-image pipelines of diffusers."""
