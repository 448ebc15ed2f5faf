"""Describers: image-text-to-text checkpoints of transformers."""

from pytest_cepbench.models.describers.transformers_describer import bind_describer

__all__ = ["bind_describer"]
