"""Generators: text-to-image pipelines of diffusers."""

from pytest_cepbench.models.generators.diffusers_generator import bind_generator

__all__ = ["bind_generator"]
