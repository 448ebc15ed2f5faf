"""Interleaved answers: made by one model or by a pipeline of several, and judged in battles."""
