"""Shared stores of objects: a bucket, or a folder that several machines mount."""
