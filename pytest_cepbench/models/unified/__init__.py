"""Unified models: one checkpoint of transformers that describes and draws, loaded once for both."""

from pytest_cepbench.models.unified.unified_model import bind_unified

__all__ = ["bind_unified"]
