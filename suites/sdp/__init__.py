"""The Semantic Drift Protocol."""
