"""Edited photographs: what models make of a start and of the same start edited."""
