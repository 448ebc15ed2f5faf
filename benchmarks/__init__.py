"""Measurements of this project that anyone can run again."""
