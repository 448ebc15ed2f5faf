"""Metrics as a suite uses them: their cases, what they read, and how that becomes scores."""
