"""Interleaved answers on generated scenes."""
