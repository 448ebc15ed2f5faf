"""A run on several workers: who has which device and which tests, who helps, who died."""
