"""Editors: pipelines of diffusers that change an image as a text says."""
