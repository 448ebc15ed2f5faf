"""Encoders: one module for each library, and those of single files of weights."""
