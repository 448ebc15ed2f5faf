"""Construction of data sets: images to patterns, labels of models and people, and frozen files.

The stages are those of MMGenBench (3.2, 3.3, B): extract, count, summary, annotate, sample, verify,
freeze. Each writes a file that people can read, and goes on where it was stopped.
"""
