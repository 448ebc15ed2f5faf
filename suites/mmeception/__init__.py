"""GenCeption on MME's images."""
