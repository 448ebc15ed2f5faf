"""Unified models: one checkpoint of transformers that describes and draws, loaded once for both."""
