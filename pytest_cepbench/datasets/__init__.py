"""Data sets: loaders of published formats and the embedded world."""
