"""The version of the package; a module of its own, so that any floor can read it."""

__version__ = "0.1.0"
