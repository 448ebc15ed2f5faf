"""MMGenBench: one drawing of each image."""
