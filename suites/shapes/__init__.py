"""Generated scenes under the trained checkpoints of this repository."""
